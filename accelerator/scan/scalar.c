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

static bool is_number(const uint8_t *text, size_t at)
{
    unsigned width;
    return class_at(text + at, &width) == CLASS_NUMBER;
}

static bool follows_number(const uint8_t *text, size_t at)
{
    if (at == 0)
        return false;
    do
        at--;
    while ((text[at] & 0xC0) == 0x80);
    return is_number(text, at);
}

void move_ends_of_numbers(const uint8_t *text, size_t size, size_t start, size_t *ends, size_t n)
{
    size_t i = 0;
    /* After its first piece, a number has as many digits left as threes take, so that both ways cut
     * what an earlier call has left of it alike. */
    if (follows_number(text, start))
        while (i < n && is_number(text, i ? ends[i - 1] : start))
            i++;
    while (i < n) {
        size_t first = i, begin = i ? ends[i - 1] : start, at = begin;
        while (i < n && is_number(text, at))
            at = ends[i++];
        if (i == first) {
            i++;
            continue;
        }
        size_t last = i - first > 1 ? ends[i - 2] : begin; /* where the last piece begins */
        unsigned digits = 0; /* of what the threes from the left leave over, modulo 3 */
        while (last < size && is_number(text, last)) {
            last = run_end(text, size, last, SET(NUMBER), 1);
            digits = (digits + 1) % 3;
        }
        for (at = begin; digits != 0 && first < i; first++) {
            at = run_end(text, size, at, SET(NUMBER), at == begin ? digits : 3);
            ends[first] = at;
        }
    }
}

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
