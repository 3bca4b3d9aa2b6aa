/* The heap of pairs, and the memory for their places. */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "train/pair_heap.h"

enum { HEAP_WIDTH = 4 }; /* children of an entry; they are side by side in memory */

void pair_heap_open(struct pair_heap *heap)
{
    memset(heap, 0, sizeof *heap);
}

void pair_heap_close(struct pair_heap *heap)
{
    free(heap->entries);
    free(heap->places);
    pair_heap_open(heap);
}

/* -- Order ----------------------------------------------------------------------------------- */

static inline bool comes_before(const struct pair_entry *a, const struct pair_entry *b)
{
    return a->count != b->count ? a->count > b->count : a->pair < b->pair;
}

/* Put an entry at i, or further down if entries below come before it. */
static void sift_down(struct pair_heap *heap, size_t i, struct pair_entry entry)
{
    for (;;) {
        size_t first = HEAP_WIDTH * i + 1;
        if (first >= heap->n)
            break;
        size_t end = heap->n - first > HEAP_WIDTH ? first + HEAP_WIDTH : heap->n, best = first;
        for (size_t child = first + 1; child < end; child++)
            if (comes_before(&heap->entries[child], &heap->entries[best]))
                best = child;
        if (!comes_before(&heap->entries[best], &entry))
            break;
        heap->entries[i] = heap->entries[best];
        i = best;
    }
    heap->entries[i] = entry;
}

void pair_heap_push(struct pair_heap *heap, struct pair_entry entry)
{
    size_t i = heap->n++;
    while (i && comes_before(&entry, &heap->entries[(i - 1) / HEAP_WIDTH])) {
        heap->entries[i] = heap->entries[(i - 1) / HEAP_WIDTH];
        i = (i - 1) / HEAP_WIDTH;
    }
    heap->entries[i] = entry;
}

struct pair_entry pair_heap_pop(struct pair_heap *heap)
{
    struct pair_entry first = heap->entries[0];
    heap->n--;
    if (heap->n)
        sift_down(heap, 0, heap->entries[heap->n]);
    if (first.n_places > 1)
        heap->dropped += first.n_places;
    return first;
}

void pair_heap_recount_first(struct pair_heap *heap, int64_t count)
{
    struct pair_entry first = heap->entries[0];
    first.count = count;
    sift_down(heap, 0, first);
}

/* -- Memory ---------------------------------------------------------------------------------- */

static int reserve_entries(struct pair_heap *heap, size_t n)
{
    if (heap->room - heap->n >= n)
        return 0;
    if (n > SIZE_MAX / sizeof *heap->entries / 2 - heap->n)
        return -1;
    size_t room = heap->n + n + (heap->n + n) / 2;
    struct pair_entry *entries = realloc(heap->entries, room * sizeof *entries);
    if (!entries)
        return -1;
    heap->entries = entries;
    heap->room = room;
    return 0;
}

/* Copy the places of the pairs in the heap to new memory, with room for n more. */
static int compact_places(struct pair_heap *heap, size_t n)
{
    size_t needed = heap->used - heap->dropped + n, room = needed + needed / 2, used = 0;
    uint32_t *places = malloc(room * sizeof *places);
    if (!places)
        return -1;
    for (size_t i = 0; i < heap->n; i++) {
        struct pair_entry *entry = &heap->entries[i];
        if (entry->n_places <= 1)
            continue;
        memcpy(places + used, heap->places + entry->places, entry->n_places * sizeof *places);
        entry->places = used;
        used += entry->n_places;
    }
    free(heap->places);
    heap->places = places;
    heap->places_room = room;
    heap->used = used;
    heap->dropped = 0;
    return 0;
}

static int reserve_places(struct pair_heap *heap, size_t n)
{
    if (heap->places_room - heap->used >= n)
        return 0;
    if (n > SIZE_MAX / sizeof *heap->places / 2 - heap->used)
        return -1;
    if (heap->dropped > heap->used / 2)
        return compact_places(heap, n);
    size_t room = heap->used + n + (heap->used + n) / 2;
    uint32_t *places = realloc(heap->places, room * sizeof *places);
    if (!places)
        return -1;
    heap->places = places;
    heap->places_room = room;
    return 0;
}

int pair_heap_reserve(struct pair_heap *heap, size_t n, size_t n_places)
{
    return reserve_entries(heap, n) < 0 || reserve_places(heap, n_places) < 0 ? -1 : 0;
}
