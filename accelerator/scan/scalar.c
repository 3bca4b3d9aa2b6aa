/* The scanners that run everywhere: one character after the other. */

#include "scan/pieces_template.h"

ALWAYS_INLINE size_t scan_pieces(const uint8_t *text, size_t size, size_t *position, size_t *ends,
                                 size_t capacity, struct split_rules rules)
{
    size_t at = *position, count = 0;
    while (at < size && count < capacity)
        ends[count++] = at = piece_end(text, size, at, rules);
    *position = at;
    return count;
}

#define AS_SCANNER(id, name, ...)                                                                  \
    static size_t scan_##id(const uint8_t *text, size_t size, size_t *position, size_t *ends,      \
                              size_t capacity)                                                     \
    {                                                                                              \
        const struct split_rules rules = __VA_ARGS__;                                              \
        return scan_pieces(text, size, position, ends, capacity, rules);                           \
    }
SPLIT_PATTERNS(AS_SCANNER)

size_t last_safe_cut(const uint8_t *text, size_t end)
{
    bool may_follow = false; /* the character at `end` may follow a cut */
    while (end > 0) {
        size_t start = end - 1;
        while ((text[start] & 0xC0) == 0x80)
            start--;
        unsigned width, class = class_at(text + start, &width);
        if (may_follow && is_in(class, LETTERS | SET(NUMBER)))
            break;
        may_follow = is_in(class, WHITE | SET(SIGN)) && text[start] != '\'';
        end = start;
    }
    return end;
}

#define AS_ENTRY(id, name, ...) scan_##id,
scanner *const scalar_scanners[PATTERN_COUNT] = {SPLIT_PATTERNS(AS_ENTRY)};
