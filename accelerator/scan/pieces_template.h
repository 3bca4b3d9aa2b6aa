/* Scanning character by character: the reference, and the way on where a block can't decide. */

#ifndef BPE_SCAN_PIECES_TEMPLATE_H
#define BPE_SCAN_PIECES_TEMPLATE_H

#include "scan/scan.h"
#include "scan/unicode_tables.h"

/* -- Characters ------------------------------------------------------------------------------ */

#define SET(name) (1u << CLASS_##name)

enum {
    LETTERS = SET(LOWER) | SET(UPPER) | SET(LETTER) | SET(KANA_LETTER),
    MARKS = SET(MARK) | SET(KANA_MARK),
    CASELESS = SET(LETTER) | SET(KANA_LETTER) | MARKS, /* what o200k takes for either case */
    OTHERS = SET(OTHER) | SET(SIGN) | SET(KANA_OTHER) | SET(KANA_SIGN),
    WHITE = SET(BLANK) | SET(NEWLINE),
};

ALWAYS_INLINE unsigned word_set(struct split_rules rules)
{
    return LETTERS | (rules.marks != MARKS_APART ? MARKS : 0);
}

ALWAYS_INLINE unsigned punctuation_set(struct split_rules rules)
{
    return OTHERS | (rules.marks != MARKS_LETTERS ? MARKS : 0);
}

ALWAYS_INLINE bool is_in(unsigned class, unsigned set)
{
    return (set >> class) & 1;
}

/* The class of the character at p, and how many bytes it takes. */
ALWAYS_INLINE unsigned class_at(const uint8_t *p, unsigned *width)
{
    uint32_t lead = p[0];
    if (lead < 0x80) {
        *width = 1;
        return ascii_classes[lead];
    }
    if (lead < 0xE0) {
        *width = 2;
        return class_of((lead & 0x1F) << 6 | (p[1] & 0x3F));
    }
    if (lead < 0xF0) {
        *width = 3;
        return class_of((lead & 0x0F) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3F));
    }
    *width = 4;
    return class_of((lead & 0x07) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 |
                    (p[3] & 0x3F));
}

/* The end of the run of characters of a set that starts at `at`; at most `limit` of them. */
ALWAYS_INLINE size_t run_end(const uint8_t *text, size_t size, size_t at, unsigned set,
                             size_t limit)
{
    unsigned width;
    while (at < size && limit-- && is_in(class_at(text + at, &width), set))
        at += width;
    return at;
}

/* -- Parts of the patterns ------------------------------------------------------------------- */

/* The length of the contraction that starts with the apostrophe at p; 0 if there is none.
 * `left` bytes can be read.  In either case, s is also U+017F, the long s. */
ALWAYS_INLINE size_t contraction_length(const uint8_t *p, size_t left, bool fold)
{
    if (left < 2)
        return 0;
    uint8_t case_bit = fold ? 0x20 : 0;
    uint8_t first = p[1] | case_bit;
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return 2;
    if (left < 3)
        return 0;
    uint8_t second = p[2] | case_bit;
    if ((first == 'l' && second == 'l') || ((first == 'v' || first == 'r') && second == 'e'))
        return 3;
    return fold && p[1] == 0xC5 && p[2] == 0xBF ? 3 : 0;
}

/* The end of o200k's word.  Its pattern, in short: [UC]*[LC]+ or else [UC]+[LC]*, with U upper, L
 * lower, C either.  The first greedily takes in all of [UC]; if no L follows, it gives back as
 * much as needed to end in a C.  If there is no C, the second takes all. */
ALWAYS_INLINE size_t cased_word_end(const uint8_t *text, size_t size, size_t at)
{
    size_t last_caseless = 0;
    unsigned width, class = CLASS_OTHER;
    for (; at < size; at += width) {
        class = class_at(text + at, &width);
        if (!is_in(class, SET(UPPER) | CASELESS))
            break;
        if (is_in(class, CASELESS))
            last_caseless = at + width;
    }
    if (at < size && class == CLASS_LOWER)
        return run_end(text, size, at, SET(LOWER) | CASELESS, SIZE_MAX);
    return last_caseless ? last_caseless : at;
}

ALWAYS_INLINE size_t word_end(const uint8_t *text, size_t size, size_t at,
                              struct split_rules rules)
{
    if (rules.cased)
        at = cased_word_end(text, size, at);
    else
        at = run_end(text, size, at, word_set(rules), SIZE_MAX);
    if (rules.contractions == CONTRACTIONS_LAST && at < size && text[at] == '\'')
        at += contraction_length(text + at, size - at, rules.fold);
    return at;
}

ALWAYS_INLINE size_t number_end(const uint8_t *text, size_t size, size_t at,
                                struct split_rules rules)
{
    return run_end(text, size, at, SET(NUMBER), rules.digits ? rules.digits : SIZE_MAX);
}

/* `set` is the characters that count as punctuation. */
ALWAYS_INLINE size_t punctuation_end(const uint8_t *text, size_t size, size_t at, unsigned set,
                                     struct split_rules rules)
{
    at = run_end(text, size, at, set, SIZE_MAX);
    if (rules.newlines)
        while (at < size && (text[at] == '\r' || text[at] == '\n' ||
                             (rules.slashes && text[at] == '/')))
            at++;
    return at;
}

/* White space before a character of the set `first` is like white space that ends the text. */
ALWAYS_INLINE size_t white_space_end(const uint8_t *text, size_t size, size_t start,
                                     unsigned first, struct split_rules rules)
{
    size_t at = start, last = start, after_newline = 0;
    unsigned width, class = CLASS_OTHER;
    for (; at < size; at += width) {
        class = class_at(text + at, &width);
        if (!is_in(class, WHITE))
            break;
        last = at;
        if (class == CLASS_NEWLINE)
            after_newline = at + width;
    }
    if (rules.whole_end && at == size)
        return at;
    if (rules.newlines && after_newline)
        return after_newline;
    if (at == size || last == start || is_in(class, first))
        return at;
    return last; /* it may belong to what follows */
}

/* -- DeepSeek-V3 ----------------------------------------------------------------------------- */

/* Its steps cut out numbers, then runs of kana and Han, and each part is cut on its own.  So words
 * and punctuation are kana or plain, never both, and only what is plain takes in white space. */
enum {
    PLAIN_WORD = SET(LOWER) | SET(UPPER) | SET(LETTER) | SET(MARK),
    KANA_WORD = SET(KANA_LETTER) | SET(KANA_MARK),
    KANA = KANA_WORD | SET(KANA_SIGN) | SET(KANA_OTHER),
};

ALWAYS_INLINE size_t ascii_letters_end(const uint8_t *text, size_t size, size_t at)
{
    while (at < size && (uint8_t)((text[at] | 0x20) - 'a') < 26)
        at++;
    return at;
}

/* The end of what is neither word, sign, number nor white space: of a run of such characters, the
 * last one belongs to a word after it. */
ALWAYS_INLINE size_t deepseek_others_end(const uint8_t *text, size_t size, size_t start,
                                         unsigned set, unsigned word)
{
    size_t at = start, last = start;
    unsigned width, class;
    for (; at < size; at += width) {
        class = class_at(text + at, &width);
        if (!is_in(class, set))
            return is_in(class, word) ? last : at;
        last = at;
    }
    return at;
}

/* The same as piece_end, by DeepSeek-V3's rules. */
ALWAYS_INLINE size_t deepseek_piece_end(const uint8_t *text, size_t size, size_t start,
                                        struct split_rules rules)
{
    unsigned width, next_width;
    unsigned class = class_at(text + start, &width), following = CLASS_NEWLINE;
    size_t next = start + width;
    if (next < size)
        following = class_at(text + next, &next_width);
    unsigned word = is_in(class, KANA) ? KANA_WORD : PLAIN_WORD;

    if (class == CLASS_NUMBER)
        return number_end(text, size, start, rules);
    if (is_in(class, word))
        return run_end(text, size, start, word, SIZE_MAX);
    if (is_in(class, SET(BLANK) | SET(OTHER) | SET(KANA_OTHER)) && is_in(following, word))
        return run_end(text, size, next, word, SIZE_MAX);
    if (class == CLASS_KANA_SIGN)
        return run_end(text, size, start, SET(KANA_SIGN), SIZE_MAX);
    if (class == CLASS_SIGN) {
        size_t end = width == 1 ? ascii_letters_end(text, size, next) : next;
        return end > next ? end : punctuation_end(text, size, start, SET(SIGN), rules);
    }
    if (text[start] == ' ' && following == CLASS_SIGN)
        return punctuation_end(text, size, next, SET(SIGN), rules);
    if (is_in(class, WHITE))
        return white_space_end(text, size, start, SET(NUMBER) | KANA, rules);
    return deepseek_others_end(text, size, start, 1u << class, word);
}

/* -- Spaces ---------------------------------------------------------------------------------- */

ALWAYS_INLINE size_t spaces_piece_end(const uint8_t *text, size_t size, size_t start)
{
    size_t at = start;
    while (at < size && text[at] == ' ')
        at++;
    while (at < size && text[at] != ' ')
        at++;
    return at;
}

/* -- One pre-token --------------------------------------------------------------------------- */

/* The end of the pre-token that starts at `start`, which is before the end of the text. */
ALWAYS_INLINE size_t piece_end(const uint8_t *text, size_t size, size_t start,
                               struct split_rules rules)
{
    if (rules.deepseek)
        return deepseek_piece_end(text, size, start, rules);
    if (rules.spaces)
        return spaces_piece_end(text, size, start);
    const unsigned word = word_set(rules), punctuation = punctuation_set(rules);
    unsigned width, next_width;
    unsigned class = class_at(text + start, &width);
    size_t next = start + width;

    if (is_in(class, word))
        return word_end(text, size, start, rules);
    if (class == CLASS_NUMBER)
        return number_end(text, size, start, rules);
    if (rules.contractions == CONTRACTIONS_FIRST && text[start] == '\'') {
        size_t length = contraction_length(text + start, size - start, rules.fold);
        if (length)
            return start + length;
    }
    bool space = text[start] == ' ';
    if (next < size && (space || (rules.any_prefix && class != CLASS_NEWLINE))) {
        unsigned following = class_at(text + next, &next_width);
        if (is_in(following, word))
            return word_end(text, size, next, rules);
        if (!rules.any_prefix && !rules.numbers_first && following == CLASS_NUMBER)
            return number_end(text, size, next, rules);
        if (space && is_in(following, punctuation))
            return punctuation_end(text, size, next, punctuation, rules);
    }
    if (is_in(class, WHITE))
        return white_space_end(text, size, start, rules.numbers_first ? SET(NUMBER) : 0, rules);
    return punctuation_end(text, size, start, punctuation, rules);
}

#endif
