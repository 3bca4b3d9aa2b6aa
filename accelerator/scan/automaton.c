/* Cutting text by an automaton. */

#include "scan/automaton.h"

#include <stdlib.h>
#include <string.h>

/* INVARIANT: each class is below n_classes, each block below the number of blocks, and each row is
 * where a state's row begins.  automaton_new has checked it. */
struct automaton {
    uint32_t *table;   /* row of the next state << 1 | ended; row 0 is for no match */
    uint32_t first;    /* the row of the first state */
    uint32_t n_classes;
    bool asks_for_last_newline;
    uint8_t ascii[128]; /* classes */
    uint8_t *blocks;
    uint16_t index[AUTOMATON_INDEX];
};

/* -- Making ---------------------------------------------------------------------------------- */

static bool check_tables(const struct automaton_tables *t)
{
    if (t->n_classes < 1 || t->n_classes > 254 || t->n_states < 2 ||
        t->n_states > AUTOMATON_STATES)
        return false;
    for (size_t i = 0; i < AUTOMATON_INDEX; i++)
        if (t->index[i] >= t->n_blocks)
            return false;
    for (size_t i = 0; i < t->n_blocks * AUTOMATON_BLOCK; i++)
        if (t->blocks[i] >= t->n_classes)
            return false;
    for (size_t i = 0; i < t->n_states * (t->n_classes + 2); i++)
        if (t->table[i] >> 1 >= t->n_states)
            return false;
    return true;
}

struct automaton *automaton_new(const struct automaton_tables *t, bool *valid)
{
    *valid = check_tables(t);
    struct automaton *automaton = *valid ? calloc(1, sizeof *automaton) : NULL;
    if (!automaton)
        return NULL;
    uint32_t width = (uint32_t)t->n_classes + 2;
    size_t size = t->n_states * width;
    automaton->table = malloc(size * sizeof *automaton->table);
    automaton->blocks = malloc(t->n_blocks * AUTOMATON_BLOCK);
    if (!automaton->table || !automaton->blocks) {
        automaton_free(automaton);
        return NULL;
    }
    for (size_t i = 0; i < size; i++)
        automaton->table[i] = (t->table[i] >> 1) * width << 1 | (t->table[i] & 1);
    memcpy(automaton->blocks, t->blocks, t->n_blocks * AUTOMATON_BLOCK);
    memcpy(automaton->index, t->index, sizeof automaton->index);
    memcpy(automaton->ascii, t->blocks + (size_t)t->index[0] * AUTOMATON_BLOCK, 128);
    automaton->first = width;
    automaton->n_classes = (uint32_t)t->n_classes;
    automaton->asks_for_last_newline = t->asks_for_last_newline;
    return automaton;
}

void automaton_free(struct automaton *automaton)
{
    if (!automaton)
        return;
    free(automaton->table);
    free(automaton->blocks);
    free(automaton);
}

/* -- Scanning -------------------------------------------------------------------------------- */

ALWAYS_INLINE unsigned class_of_others(const struct automaton *automaton, uint32_t code_point)
{
    size_t block = automaton->index[code_point / AUTOMATON_BLOCK];
    return automaton->blocks[block * AUTOMATON_BLOCK + code_point % AUTOMATON_BLOCK];
}

/* The class of the character at p, which is not ASCII, and how many bytes it takes. */
ALWAYS_INLINE unsigned class_of_wide(const struct automaton *automaton, const uint8_t *p,
                                     size_t *width)
{
    uint32_t lead = p[0];
    if (lead < 0xE0) {
        *width = 2;
        return class_of_others(automaton, (lead & 0x1F) << 6 | (p[1] & 0x3Fu));
    }
    if (lead < 0xF0) {
        *width = 3;
        return class_of_others(automaton,
                               (lead & 0x0F) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu));
    }
    *width = 4;
    return class_of_others(automaton, (lead & 0x07) << 18 | (p[1] & 0x3Fu) << 12 |
                                          (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu));
}

/* The end of the match that starts at `start`; `start` if there is none.  `limit` is the end of the
 * text, or before it where its last newline has a column of its own. */
ALWAYS_INLINE size_t match_end(const struct automaton *automaton, const uint8_t *text, size_t size,
                               size_t limit, size_t start)
{
    const uint32_t *table = automaton->table;
    uint32_t row = automaton->first;
    size_t at = start, end = start;
    while (at < limit) {
        size_t width = 1;
        uint8_t byte = text[at];
        unsigned class =
            byte < 0x80 ? automaton->ascii[byte] : class_of_wide(automaton, text + at, &width);
        uint32_t entry = table[row + class];
        end = entry & 1 ? at : end;
        row = entry >> 1;
        if (!row)
            return end;
        at += width;
    }
    if (limit < size) {
        uint32_t entry = table[row + automaton->n_classes + 1];
        end = entry & 1 ? limit : end;
        row = entry >> 1;
    }
    return table[row + automaton->n_classes] & 1 ? size : end;
}

size_t scan_by_automaton(const struct automaton *automaton, const uint8_t *text, size_t size,
                         size_t *position, size_t *ends, size_t capacity)
{
    size_t done = *position, at = done, count = 0;
    size_t limit = size - (automaton->asks_for_last_newline && size && text[size - 1] == '\n');
    while (at < size && count + 2 <= capacity) {
        size_t end = match_end(automaton, text, size, limit, at);
        if (end > at) {
            if (at > done) /* text where no match begins is a pre-token, too */
                ends[count++] = at;
            ends[count++] = done = at = end;
        } else {
            do
                at++;
            while (at < size && (text[at] & 0xC0) == 0x80);
        }
    }
    if (at == size && at > done)
        ends[count++] = done = at;
    *position = done;
    return count;
}
