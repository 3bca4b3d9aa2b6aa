/* Cutting text into pre-tokens: the common parts of the scanners, and their guarantees.
 *
 * A scanner cuts like `regex` with one of the built-in split patterns.  There are two ways to scan,
 * with the same pre-tokens: character by character (pieces_template.h), and 64 bytes at a time
 * (blocks_template.h).  Both are written once; the rules of each pattern, which the compiler sees
 * as constants, specialize them.
 *
 * INVARIANT of everything in C that reads text: it is valid UTF-8, without
 * surrogates.  Python's strings are encoded so, and bytes of a file are checked first (normal.h);
 * nothing else gets here.  A lead byte therefore is always followed by the bytes it announces,
 * inside the text. */

#ifndef BPE_SCAN_SCAN_H
#define BPE_SCAN_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/processor.h"

#if defined(__GNUC__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#else
#define ALWAYS_INLINE static inline
#endif

/* Where contractions ('s 't 're 've 'm 'll 'd) belong. */
enum contractions {
    CONTRACTIONS_NONE,
    CONTRACTIONS_FIRST, /* a pre-token of their own, before anything else is tried */
    CONTRACTIONS_LAST,  /* the end of a word */
};

/* How combining marks are classified. */
enum marks {
    MARKS_APART,   /* punctuation */
    MARKS_LETTERS, /* letters */
    MARKS_EITHER,  /* punctuation after punctuation, elsewhere letters */
};

/* How the split patterns differ.  `cased` means o200k's two alternatives for words; all others have
 * one, a run of letters. */
struct split_rules {
    bool cased;         /* a word ends where an upper-case letter follows a lower-case one */
    bool any_prefix;    /* a word includes one character before it that is not a letter, number
                           or newline; if false, only a space, and so do numbers */
    bool newlines;      /* punctuation includes newlines after it; white space is cut after its
                           last newline */
    bool slashes;       /* punctuation also includes slashes among those newlines */
    bool whole_end;     /* white space that ends the text is not cut */
    bool numbers_first; /* numbers are cut out first: they include nothing else, and white space
                           before one ends a text */
    bool deepseek;      /* DeepSeek-V3's own rules, see deepseek_piece_end */
    bool spaces;        /* none of these: text is cut before each run of spaces */
    bool fold;          /* contractions in either case */
    enum contractions contractions;
    enum marks marks;
    unsigned digits; /* the longest run of numbers; 0 means that there is no limit */
};

/* The patterns: an identifier, the name, and the rules, in the order of the enumeration below.
 * Those of bpe_tokenizer.SPLIT_PATTERNS come first, then MORE_PATTERNS of
 * bpe_tokenizer_tools/patterns/known.py. */
#define SPLIT_PATTERNS(PATTERN)                                                                    \
    PATTERN(gpt2, "gpt2", {.contractions = CONTRACTIONS_FIRST})                                    \
    PATTERN(cl100k, "cl100k",                                                                      \
            {.any_prefix = true, .newlines = true, .whole_end = true, .fold = true,                \
             .contractions = CONTRACTIONS_FIRST, .digits = 3})                                     \
    PATTERN(o200k, "o200k",                                                                        \
            {.cased = true, .marks = MARKS_EITHER, .any_prefix = true, .newlines = true,           \
             .slashes = true, .fold = true, .contractions = CONTRACTIONS_LAST, .digits = 3})       \
    PATTERN(llama3, "llama3",                                                                      \
            {.any_prefix = true, .newlines = true, .fold = true,                                   \
             .contractions = CONTRACTIONS_FIRST, .digits = 3})                                     \
    PATTERN(qwen2, "qwen2",                                                                        \
            {.any_prefix = true, .newlines = true, .fold = true,                                   \
             .contractions = CONTRACTIONS_FIRST, .digits = 1})                                     \
    PATTERN(qwen35, "qwen3.5",                                                                     \
            {.any_prefix = true, .marks = MARKS_LETTERS, .newlines = true, .fold = true,           \
             .contractions = CONTRACTIONS_FIRST, .digits = 1})                                     \
    PATTERN(deepseek_v3, "deepseek-v3",                                                            \
            {.deepseek = true, .newlines = true, .numbers_first = true, .digits = 3})              \
    PATTERN(tekken, "tekken",                                                                      \
            {.cased = true, .marks = MARKS_EITHER, .any_prefix = true, .newlines = true,           \
             .slashes = true, .digits = 1})                                                        \
    PATTERN(nanochat, "nanochat",                                                                  \
            {.any_prefix = true, .newlines = true, .fold = true,                                   \
             .contractions = CONTRACTIONS_FIRST, .digits = 2})                                     \
    PATTERN(starcoder, "starcoder",                                                                \
            {.contractions = CONTRACTIONS_FIRST, .numbers_first = true, .digits = 1})              \
    PATTERN(spaces, "spaces", {.spaces = true})

enum pattern {
#define AS_ENUM(name, ...) PATTERN_##name,
    SPLIT_PATTERNS(AS_ENUM)
#undef AS_ENUM
    PATTERN_COUNT
};

enum { SCAN_MARGIN = 64 }; /* a scanner stops when fewer slots than this are left */

/* Cut text[*position .. size) into pre-tokens, as far as there is room for them.
 *
 * *position is where a pre-token starts.  The end of each is written to `ends`, at most
 * `capacity`, which is at least SCAN_MARGIN; *position is moved to the last of them.  Returns how
 * many there are, 0 only at the end of the text. */
typedef size_t scanner(const uint8_t *text, size_t size, size_t *position, size_t *ends,
                       size_t capacity);

/* The scanner of each pattern: by characters, and by blocks on the processors that a file was
 * written for. */
extern scanner *const scalar_scanners[PATTERN_COUNT];
extern scanner *const avx2_scanners[PATTERN_COUNT];
extern scanner *const neon_scanners[PATTERN_COUNT];

/* The same by an automaton (automaton.h), for any other pattern. */
struct automaton;
size_t scan_by_automaton(const struct automaton *automaton, const uint8_t *text, size_t size,
                         size_t *position, size_t *ends, size_t capacity);

/* Every scanner except that of "spaces" cuts between a letter or number and a space or sign, other
 * than an apostrophe, whatever is around them: both sides can be encoded independently.  Returns
 * the last such place before `end` that a character follows; or 0, where text can always be cut,
 * if there is none.  (bpe_tokenizer.py says the same in _SAFE_CUT.) */
size_t last_safe_cut(const uint8_t *text, size_t end);

/* A cutter: one of the two, or neither, if text comes already cut into pre-tokens. */
struct cutter {
    scanner *scan;
    const struct automaton *automaton;
    bool cuts_safely; /* as last_safe_cut says */
    bool from_right;  /* numbers are cut by threes from the right; the scanner does so from the left */
};

/* Move the ends that a scanner found in numbers, cut by threes from the left, to where they are from
 * the right: a number has as many pieces either way.  `start` is where the scanner began; the last of
 * the n ends may be in a number that goes on.  Takes linear time over all calls for a text. */
void move_ends_of_numbers(const uint8_t *text, size_t size, size_t start, size_t *ends, size_t n);

ALWAYS_INLINE bool can_cut(struct cutter cutter)
{
    return cutter.scan || cutter.automaton;
}

ALWAYS_INLINE size_t cut(struct cutter cutter, const uint8_t *text, size_t size, size_t *position,
                         size_t *ends, size_t capacity)
{
    if (cutter.automaton)
        return scan_by_automaton(cutter.automaton, text, size, position, ends, capacity);
    size_t start = *position;
    size_t n = cutter.scan(text, size, position, ends, capacity);
    if (cutter.from_right && n > 0) {
        move_ends_of_numbers(text, size, start, ends, n);
        *position = ends[n - 1];
    }
    return n;
}

#endif
