/* The loop that merges up to 64 parts; merge_short.h says how.
 *
 * Who includes this defines `struct keys` and AS_CONSTANTS first: the memory for a key of each
 * pair, and what functions are declared as.  The three functions that work on keys can follow. */

#ifndef BPE_ENCODE_MERGE_TEMPLATE_H
#define BPE_ENCODE_MERGE_TEMPLATE_H

#include "encode/merge_short.h"

/* Begin with these keys.  `room` is a multiple of 8; `keys` may use the memory of `first`, which has
 * HOLES_UP_TO + 1 places. */
static inline void load_keys(struct keys *keys, int32_t *first, unsigned room);
static inline int32_t smallest_key(const struct keys *keys, unsigned room);
/* Replace the key at a place.  That at HOLES_UP_TO, where no part is, counts for nothing. */
static inline void replace_key(struct keys *keys, unsigned room, unsigned place, int32_t key);

/* Marks a missing part; never an id. */
#define NO_PART ((1u << ID_BITS) - 1)

AS_CONSTANTS size_t merge_with_keys(const struct vocabulary *v, const uint8_t *bytes, unsigned n,
                                    uint32_t *ids, const unsigned room)
{
    uint32_t part[HOLES_UP_TO + 1];
    int32_t first_keys[HOLES_UP_TO + 1];
    struct keys keys;
    uint64_t alive = n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0;
    for (unsigned i = 0; i < n; i++)
        part[i] = v->byte_ids[bytes[i]];
    part[HOLES_UP_TO] = NO_PART;
    for (unsigned i = 0; i < room; i++)
        first_keys[i] = NO_PAIR;
    for (unsigned i = 0; i + 1 < n; i++)
        first_keys[i] = ranked_place(v->byte_pair_ranks[bytes[i] << 8 | bytes[i + 1]], i);
    load_keys(&keys, first_keys, room);
    for (;;) {
        int32_t least = smallest_key(&keys, room);
        uint32_t rank = (uint32_t)least >> 6;
        if (rank >= NO_RANK)
            break;
        unsigned at = (unsigned)least & 63;
        uint64_t later = alive & ~(((uint64_t)2 << at) - 1); /* never empty: the pair has a right */
        unsigned taken = (unsigned)__builtin_ctzll(later);
        alive &= ~((uint64_t)1 << taken);
        later &= later - 1;
        uint64_t earlier = alive & (((uint64_t)1 << at) - 1);
        unsigned before = earlier ? 63 - (unsigned)__builtin_clzll(earlier) : HOLES_UP_TO;
        unsigned after = later ? (unsigned)__builtin_ctzll(later) : HOLES_UP_TO;
        uint32_t rank_before, rank_after;
        part[at] = joined_id(v, rank);
        ranks_around(v, part[before], part[at], part[after], &rank_before, &rank_after);
        replace_key(&keys, room, taken, NO_PAIR);
        replace_key(&keys, room, at, ranked_place(rank_after, at));
        replace_key(&keys, room, before, ranked_place(rank_before, before));
    }
    size_t count = 0;
    for (; alive; alive &= alive - 1)
        ids[count++] = part[__builtin_ctzll(alive)];
    return count;
}

#endif
