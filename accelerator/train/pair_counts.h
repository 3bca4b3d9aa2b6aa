/* How often each pair of symbols occurs: a map from pairs to counts. */

#ifndef BPE_TRAIN_PAIR_COUNTS_H
#define BPE_TRAIN_PAIR_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

/* A pair is one number, which sorts by the left symbol first.  Symbols are below 2**31. */
static inline uint64_t make_pair(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

static inline uint32_t left_of(uint64_t pair)
{
    return (uint32_t)(pair >> 32);
}

static inline uint32_t right_of(uint64_t pair)
{
    return (uint32_t)pair;
}

struct pair_count {
    uint64_t pair_and_1; /* the pair plus 1; 0 in a free entry */
    int64_t count;
};

struct pair_counts {
    struct pair_count *entries; /* at most half of them are used, so some are always free */
    unsigned bits;
    size_t used;
};

int pair_counts_open(struct pair_counts *counts); /* 0, or -1 if memory is short */
void pair_counts_close(struct pair_counts *counts);

/* Make room for n more pairs: until n are added, no entry moves.  Returns 0, or -1 if memory
 * is short. */
int pair_counts_reserve(struct pair_counts *counts, size_t n);

/* Where a pair may be. */
static inline struct pair_count *pair_place(const struct pair_counts *counts, uint64_t pair)
{
    return &counts->entries[fold_product(pair + 1, HASH_FACTOR) >> (64 - counts->bits)];
}

/* The entry of a pair, or the free one where it would be. */
static inline struct pair_count *find_pair(const struct pair_counts *counts, uint64_t pair)
{
    struct pair_count *place = pair_place(counts, pair);
    while (place->pair_and_1 && place->pair_and_1 != pair + 1)
        if (++place == counts->entries + ((size_t)1 << counts->bits))
            place = counts->entries;
    return place;
}

/* The count of a pair: its place.  A new pair has 0; there must be room for it. */
static inline int64_t *count_of_pair(struct pair_counts *counts, uint64_t pair)
{
    struct pair_count *entry = find_pair(counts, pair);
    counts->used += !entry->pair_and_1;
    entry->pair_and_1 = pair + 1;
    return &entry->count;
}

#endif
