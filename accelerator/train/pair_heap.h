/* The pairs to merge, the most frequent first, with the places where they are.
 *
 * Among equal counts, the pair that sorts first comes first.  Each pair is in the heap once.  Its
 * count may fall later: the entry keeps the old count until it reaches the top. */

#ifndef BPE_TRAIN_PAIR_HEAP_H
#define BPE_TRAIN_PAIR_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct pair_entry {
    int64_t count;
    uint64_t pair;
    uint64_t places; /* the index of the first in pair_heap.places; a single place itself */
    uint32_t n_places;
};

struct pair_heap {
    struct pair_entry *entries; /* none comes before its parent, entries[(i - 1) / HEAP_WIDTH] */
    size_t n, room;

    uint32_t *places; /* of all pairs that have several */
    size_t used, places_room;
    size_t dropped; /* of those used: places of pairs that are no longer in the heap */
};

void pair_heap_open(struct pair_heap *heap);
void pair_heap_close(struct pair_heap *heap);

/* Make room for n more pairs, and for n_places places of those that have several.  The places of
 * removed pairs may be gone afterward.  Returns 0, or -1 if memory is short. */
int pair_heap_reserve(struct pair_heap *heap, size_t n, size_t n_places);

/* Add a pair, for which there must be room. */
void pair_heap_push(struct pair_heap *heap, struct pair_entry entry);

/* Remove the first pair; there must be one.  Its places stay until something is reserved. */
struct pair_entry pair_heap_pop(struct pair_heap *heap);

/* Give the first pair its current count. */
void pair_heap_recount_first(struct pair_heap *heap, int64_t count);

static inline const uint32_t *places_of(const struct pair_heap *heap,
                                        const struct pair_entry *entry, uint32_t *single)
{
    if (entry->n_places > 1)
        return heap->places + entry->places;
    *single = (uint32_t)entry->places;
    return single;
}

#endif
