/* Scanning 64 bytes at a time.
 *
 * Each byte of a block is a bit in a few 64-bit masks: letters, numbers, white space and so on.  A
 * few dozen operations on masks then find all places in the block where a pre-token starts.  "A
 * letter not after a letter", for one, is `letter & ~(letter << 1)`.
 *
 * A block always begins where a pre-token starts, so that nothing is carried over from the one
 * before.  All starts that the block alone decides are taken, and the next block begins at the
 * last of them.  Where a block decides nothing, one pre-token is scanned by characters.
 *
 * Files that include this define `classify_ascii` first. */

#ifndef BPE_SCAN_BLOCKS_TEMPLATE_H
#define BPE_SCAN_BLOCKS_TEMPLATE_H

#include <string.h>

#include "scan/pieces_template.h"

/* The classes of a block's bytes; bit i is for byte i.  All bytes of a character are in its
 * class. */
struct block {
    uint64_t upper, lower, caseless; /* letters; caseless includes marks if they are letters */
    uint64_t number, blank, newline;
    uint64_t kana, kana_sign;          /* for DeepSeek-V3 only; else they are as all others */
    uint64_t space, apostrophe, slash; /* these three bytes themselves */
    uint64_t control;                  /* bytes below 0x20, and 0x7F */
    uint64_t other;                    /* none of the classes above */
    uint64_t high;                     /* bytes above 0x7F */
    uint64_t inner;                    /* bytes of a character that are not its first */
};

/* Fills a block from its ASCII bytes, as if bytes above 0x7F had no class. */
static inline void classify_ascii(const uint8_t *p, struct block *block);

ALWAYS_INLINE unsigned lowest(uint64_t mask)
{
    return (unsigned)__builtin_ctzll(mask);
}

/* Bits 0 .. n-1; n is at most 64. */
ALWAYS_INLINE uint64_t below(unsigned n)
{
    return n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0;
}

/* The lowest bit of each run of bits. */
ALWAYS_INLINE uint64_t first_bits(uint64_t mask)
{
    return mask & ~(mask << 1);
}

/* -- Classes --------------------------------------------------------------------------------- */

/* Record the class of the character with these `bytes`.  Returns false for rare ones that would
 * complicate the rules: digits and white space above U+007F, and for DeepSeek-V3 characters that
 * are not in a word, sign or number. */
ALWAYS_INLINE bool note_class(struct block *block, unsigned class, uint64_t bytes,
                              struct split_rules rules)
{
    if (class == CLASS_LOWER)
        block->lower |= bytes;
    else if (class == CLASS_UPPER)
        block->upper |= bytes;
    else if (is_in(class, rules.deepseek ? PLAIN_WORD : word_set(rules)))
        block->caseless |= bytes;
    else if (is_in(class, SET(NUMBER) | SET(BLANK)))
        return false;
    else if (rules.deepseek && is_in(class, KANA_WORD))
        block->kana |= bytes;
    else if (rules.deepseek && class == CLASS_KANA_SIGN)
        block->kana_sign |= bytes;
    else if (rules.deepseek && class != CLASS_SIGN)
        return false;
    return true;
}

/* Give the characters above U+007F their class.  Returns how many bytes of the block can be used:
 * it ends before a character that crosses its end, and before rare ones. */
ALWAYS_INLINE unsigned classify_high(const uint8_t *p, unsigned n, struct block *block,
                                     struct split_rules rules)
{
    uint64_t left = block->high & below(n);
    while (left) {
        unsigned at = lowest(left), width, class;
        /* NOTE: the width is asked before the class, which reads all bytes of the character. */
        width = p[at] < 0xE0 ? 2 : p[at] < 0xF0 ? 3 : 4;
        if (at + width > n)
            return at;
        class = class_at(p + at, &width);
        uint64_t bytes = below(width) << at;
        if (!note_class(block, class, bytes, rules))
            return at;
        block->inner |= bytes & (bytes << 1);
        left &= ~bytes;
        /* NOTE: a mark after punctuation belongs to it, and is not a letter. */
        if (rules.marks == MARKS_EITHER && is_in(class, MARKS) && at) {
            uint64_t before = (uint64_t)1 << (at - 1);
            uint64_t known = block->lower | block->upper | block->caseless | block->number |
                             block->blank | block->newline;
            if (!(known & before))
                return at;
        }
    }
    return n;
}

/* -- Starts ---------------------------------------------------------------------------------- */

/* The starts in white space that doesn't belong to the piece before it.  Before `end`, the rules
 * are those for the end of a text. */
ALWAYS_INLINE uint64_t white_starts(uint64_t blank, uint64_t newline, uint64_t end)
{
    uint64_t white = blank | newline;
    uint64_t first = first_bits(white);
    uint64_t last = blank & ~((white | end) >> 1);
    uint64_t after_newline = blank & (newline << 1);
    /* Blanks that another newline follows belong to it.  Adding carries each start through its
     * run of blanks, to the bit after it. */
    uint64_t taken = (after_newline + blank) & newline;
    for (; taken; taken &= taken - 1) {
        uint64_t before = after_newline & below(lowest(taken));
        if (before) /* the highest bit is the start of those very blanks */
            after_newline &= ~((uint64_t)1 << (63 - __builtin_clzll(before)));
    }
    return first | last | after_newline;
}

/* The starts in runs of numbers, given their first bytes. */
ALWAYS_INLINE uint64_t number_starts(uint64_t number, uint64_t first, unsigned digits)
{
    if (digits == 1)
        return number;
    if (digits == 0)
        return first;
    uint64_t long_enough = number; /* as many digits stand right before it */
    for (unsigned i = 1; i <= digits; i++)
        long_enough &= number << i;
    uint64_t starts = first;
    for (uint64_t more = first; (more = (more << digits) & long_enough) != 0;)
        starts |= more;
    return starts;
}

/* The newlines that belong to the punctuation before them, and the slashes among them. */
ALWAYS_INLINE uint64_t newlines_taken(uint64_t newline, uint64_t slash, uint64_t other)
{
    /* Adding carries each of `seed` through the run of `tail` it is in, and so clears what is
     * taken in; but several may be in one run. */
    uint64_t seed = newline & (other << 1);
    uint64_t tail = newline | slash;
    return (tail & ~(tail + seed)) | seed;
}

/* Fix the starts around the apostrophes of `candidates`, which are pre-tokens of their own or
 * start one.  Returns how much of the block is decided. */
ALWAYS_INLINE unsigned fix_contractions(const uint8_t *p, unsigned n, uint64_t candidates,
                                        uint64_t letter, uint64_t *starts,
                                        struct split_rules rules)
{
    unsigned end = 64; /* of the contraction before */
    for (; candidates; candidates &= candidates - 1) {
        unsigned at = lowest(candidates);
        if (rules.contractions == CONTRACTIONS_LAST && at == end)
            continue; /* it follows a contraction, so it starts a word */
        unsigned length = (unsigned)contraction_length(p + at, n - at, rules.fold);
        if (!length && at + 3 > n)
            return at + (rules.contractions == CONTRACTIONS_FIRST);
        if (!length)
            continue;
        end = at + length;
        uint64_t bytes = below(length) << at;
        if (rules.contractions == CONTRACTIONS_FIRST)
            bytes &= bytes - 1; /* the apostrophe stays a start */
        *starts &= ~bytes;
        if (end < n)
            *starts |= letter & ((uint64_t)1 << end);
    }
    return n;
}

/* The starts of words and, as given, of punctuation, without those that join the other.  `white` is
 * the white space that words include. */
ALWAYS_INLINE uint64_t word_starts(const struct block *block, uint64_t letter, uint64_t white,
                                   uint64_t other_start, struct split_rules rules)
{
    uint64_t first = first_bits(letter);
    uint64_t starts = (first & ~(white << 1)) | other_start;
    if (rules.any_prefix) {
        /* A single character of punctuation belongs to the word after it; adding carries its
         * start over the inner bytes, to the next character. */
        starts &= ~(first & ((other_start << 1) + block->inner) & ~block->inner);
    }
    if (rules.cased)
        starts |= letter & block->upper & (block->lower << 1);
    if (rules.deepseek) {
        /* A single ASCII sign includes the ASCII letters after it, and no others.  Adding
         * carries the start of those letters to the byte after them. */
        uint64_t ascii = letter & ~block->high;
        uint64_t joined = ascii & ((other_start & ~block->high) << 1);
        starts = (starts & ~joined) | ((ascii + joined) & ~ascii & letter);
    }
    return starts;
}

/* All starts of pre-tokens that the first n bytes of a block decide; bit 0 is one of them. */
ALWAYS_INLINE uint64_t block_starts(const uint8_t *p, unsigned n, struct split_rules rules)
{
    struct block block;
    classify_ascii(p, &block);
    if (rules.spaces)
        return (first_bits(block.space) & below(n)) | 1;
    block.inner = block.kana = block.kana_sign = 0;
    if (rules.deepseek) {
        uint64_t rare = block.control & ~block.blank & ~block.newline & below(n);
        if (rare)
            n = lowest(rare);
    }
    if (block.high)
        n = classify_high(p, n, &block, rules);
    if (rules.cased) {
        /* Whether an upper-case letter after one without case starts a word, is decided later. */
        uint64_t unsure = block.upper & (block.caseless << 1) & below(n);
        if (unsure)
            n = lowest(unsure);
    }
    if (n == 0)
        return 1;

    uint64_t valid = below(n);
    uint64_t letter = (block.upper | block.lower | block.caseless) & valid;
    uint64_t number = block.number & valid;
    uint64_t blank = block.blank & valid, newline = block.newline & valid;
    uint64_t kana = (block.kana | block.kana_sign) & valid;
    uint64_t other = ~(letter | number | blank | newline | kana) & valid;
    if (rules.newlines) {
        uint64_t taken = newlines_taken(newline, rules.slashes ? block.slash & valid : 0, other);
        other &= ~taken;
        newline &= ~taken;
    } else {
        blank |= newline;
        newline = 0;
    }
    uint64_t space = block.space & valid;
    uint64_t other_start = first_bits(other) & ~(space << 1);
    uint64_t number_start = first_bits(number);
    if (!rules.any_prefix && !rules.numbers_first)
        number_start &= ~(space << 1);

    bool any_blank = rules.any_prefix || rules.deepseek;
    uint64_t starts = word_starts(&block, letter, any_blank ? blank : space, other_start, rules);
    starts |= number_starts(number, number_start, rules.digits);
    starts |= white_starts(blank, newline, kana | (rules.numbers_first ? number : 0));
    starts |= first_bits(block.kana & valid) | first_bits(block.kana_sign & valid);

    /* White space at the end of the block may continue in the next one. */
    uint64_t white = blank | newline;
    if (white >> (n - 1) & 1) {
        uint64_t not_white = ~white & valid;
        unsigned run = not_white ? 64 - (unsigned)__builtin_clzll(not_white) : 0;
        starts &= below(run + 1);
    }
    if (rules.contractions != CONTRACTIONS_NONE) {
        uint64_t candidates = block.apostrophe & other_start;
        if (rules.contractions == CONTRACTIONS_LAST)
            candidates &= letter << 1;
        if (candidates) {
            unsigned decided = fix_contractions(p, n, candidates, letter, &starts, rules);
            starts &= below(decided);
        }
    }
    return starts | 1;
}

/* -- The scanner ----------------------------------------------------------------------------- */

ALWAYS_INLINE size_t scan_blocks(const uint8_t *text, size_t size, size_t *position, size_t *ends,
                                 size_t capacity, struct split_rules rules)
{
    size_t at = *position, count = 0;
    uint8_t tail[64]; /* the last block, so that nothing is read beyond the text */
    while (at < size && count + SCAN_MARGIN <= capacity) {
        const uint8_t *p = text + at;
        unsigned n = 64;
        if (size - at < 64) {
            n = (unsigned)(size - at);
            memset(tail, 0, sizeof tail);
            memcpy(tail, p, n);
            p = tail;
        }
        uint64_t starts = block_starts(p, n, rules) & ~(uint64_t)1;
        if (!starts) {
            ends[count++] = at = piece_end(text, size, at, rules);
            continue;
        }
        for (; starts; starts &= starts - 1) /* at most 63, and so within the margin */
            ends[count++] = at + lowest(starts);
        at = ends[count - 1];
    }
    *position = at;
    return count;
}

/* The function that scans by one pattern, scan_ID. */
#define BLOCK_SCANNER(id, name, ...)                                                               \
    static size_t scan_##id(const uint8_t *text, size_t size, size_t *position, size_t *ends,      \
                            size_t capacity)                                                       \
    {                                                                                              \
        const struct split_rules rules = __VA_ARGS__;                                              \
        return scan_blocks(text, size, position, ends, capacity, rules);                           \
    }

#endif
