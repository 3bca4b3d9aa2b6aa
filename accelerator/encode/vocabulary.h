/* A vocabulary: the merges, in a form for fast lookups.
 *
 * Tokens are known here by their ids alone.  Nothing changes after loading, so that all threads
 * may read it. */

#ifndef BPE_ENCODE_VOCABULARY_H
#define BPE_ENCODE_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "encode/tokens.h"

enum {
    ID_BITS = 20,
    MAX_IDS = (1 << ID_BITS) - 2, /* ids are smaller; the two above mean something in the cache */
    RANK_BITS = 24,
    MAX_MERGES = (1 << RANK_BITS) - 1,
    NO_RANK = MAX_MERGES, /* worse than any */
    FILTER_BITS = 20,
    WHOLE_KEY_BYTES = 11,
    WHOLE_ID_SHIFT = 8 * (WHOLE_KEY_BYTES - 8),
};

#define ID_MASK (((uint32_t)1 << ID_BITS) - 1)

/* One merge: two ids, and the id of the token they make. */
struct merge {
    uint32_t left, right, joined;
};

/* A token in a hash table: half of its hash, and its id, or NO_TOKEN in a free place. */
struct long_token {
    uint32_t tag, id;
};

struct vocabulary {
    bool use_avx2;          /* supported by the processor, and wanted */
    uint32_t n_ids;         /* all ids are smaller */
    uint32_t byte_ids[256]; /* the token of each byte */

    /* The merges: a hash table with linear probing, of left << 44 | right << 24 | rank.  Most
     * pairs that are asked for are no merges; a bit of `filter` is set for those that may be. */
    uint64_t *pairs;
    uint64_t *filter;
    unsigned pair_bits;
    uint64_t pair_factor; /* odd; what pairs are hashed with */
    size_t pairs_put;     /* how many were put there, and how many slots were looked at */
    uint64_t pair_probes;
    unsigned times_rehashed;
    uint32_t *byte_pair_ranks; /* the same for two bytes, by first << 8 | second */

    /* Rank to id.  If ids of merged tokens rise with their rank, as they mostly do, the id itself
     * serves as the rank, and this is NULL. */
    uint32_t *joined;
    uint32_t n_ranks; /* all ranks are smaller */
    /* Whether every merge comes after those that make its parts.  Then merging never brings up a
     * pair that should have come before. */
    bool ordered;

    /* If not NULL, a pre-token that is one of these tokens becomes that, without merging.  They
     * are not the vocabulary's own, and not released with it. */
    const struct tokens *whole;
    /* A bit is set for each that may be one; it tells of most bytes that they are none.  And for
     * those of up to 11 bytes a hash table with linear probing of their keys, with the length and
     * the id in what is free of them. */
    struct key *whole_keys;
    uint64_t *whole_filter;
    unsigned whole_bits;
    struct long_token *whole_longs; /* a hash table of the others */
    unsigned whole_long_bits;

    /* If not NULL, pre-tokens are encoded in two stages: see superwords.h.  Not the vocabulary's own,
     * either. */
    const struct superwords *superwords;

    /* A secret: without it, no vocabulary can be written whose table entries collide. */
    uint64_t seed;
    uint64_t probes; /* how many slots of all tables were looked at to fill them */
};

/* Fill a vocabulary.  Returns 0, or -1 if memory is short; release it in either case.
 *
 * The merges are in rank order; of equal pairs the last counts.  All ids are below n_ids, which
 * is at most MAX_IDS, and n_merges is at most MAX_MERGES. */
int vocabulary_load(struct vocabulary *vocabulary, uint32_t n_ids, const uint32_t byte_ids[256],
                    const struct merge *merges, size_t n_merges, uint64_t seed);
void vocabulary_release(struct vocabulary *vocabulary);

/* The same step by step, for ids that serve as ranks: open it, then add each merge, two bytes also
 * to byte_pair_ranks.  There is room for n_merges. */
int vocabulary_open(struct vocabulary *vocabulary, uint32_t n_ids, const uint32_t byte_ids[256],
                    size_t n_merges, uint64_t seed);
void vocabulary_add_pair(struct vocabulary *vocabulary, uint32_t left, uint32_t right,
                         uint32_t rank);

/* Let pre-tokens that are tokens need no merging.  Returns 0, or -1 if memory is short. */
int vocabulary_set_whole(struct vocabulary *vocabulary, const struct tokens *tokens);

/* The token that bytes are by themselves, or NO_TOKEN; `whole` must be set.  The key is that of
 * the bytes, with or without the length; for more than KEY_BYTES it does not matter. */
uint32_t whole_token(const struct vocabulary *vocabulary, struct key key, const uint8_t *bytes,
                     size_t length);

/* The id in the higher half of a key in whole_keys. */
static inline uint32_t whole_key_id(uint64_t high)
{
    return (uint32_t)(high >> WHOLE_ID_SHIFT) & ID_MASK;
}

static inline uint64_t whole_key_hash(const struct vocabulary *v, struct key key)
{
    return seeded_hash_key(v->seed, key);
}

/* Have fetched what whole_token looks at first, for at most WHOLE_KEY_BYTES bytes. */
static inline void prefetch_whole(const struct vocabulary *v, struct key key, size_t length)
{
#if defined(__GNUC__)
    uint64_t hash = whole_key_hash(v, with_length(key, length));
    __builtin_prefetch(&v->whole_filter[hash >> (64 - FILTER_BITS) >> 6]);
    __builtin_prefetch(&v->whole_keys[hash >> (64 - v->whole_bits)]);
#else
    (void)v, (void)key, (void)length;
#endif
}

static inline uint64_t pair_hash(const struct vocabulary *v, uint32_t left, uint32_t right)
{
    return ((uint64_t)left << ID_BITS | right) * v->pair_factor;
}

static inline bool may_be_merge(const struct vocabulary *v, uint64_t hash)
{
    uint64_t bit = hash >> (64 - FILTER_BITS);
    return v->filter[bit >> 6] >> (bit & 63) & 1;
}

static inline uint32_t find_rank(const struct vocabulary *v, uint64_t hash, uint32_t left,
                                 uint32_t right)
{
    const uint64_t key = (uint64_t)left << ID_BITS | right;
    const size_t mask = ((size_t)1 << v->pair_bits) - 1;
    for (size_t slot = hash >> (64 - v->pair_bits);; slot = (slot + 1) & mask) {
        uint64_t found = v->pairs[slot]; /* some slot is free, so this ends */
        if (found >> RANK_BITS == key)
            return (uint32_t)found & NO_RANK;
        if (found == UINT64_MAX)
            return NO_RANK;
    }
}

/* The rank of a pair of ids, or NO_RANK. */
static inline uint32_t rank_of(const struct vocabulary *v, uint32_t left, uint32_t right)
{
    uint64_t hash = pair_hash(v, left, right);
    return may_be_merge(v, hash) ? find_rank(v, hash, left, right) : NO_RANK;
}

static inline void prefetch_pair(const struct vocabulary *v, uint64_t hash)
{
#if defined(__GNUC__)
    __builtin_prefetch(&v->pairs[hash >> (64 - v->pair_bits)]);
#else
    (void)v, (void)hash;
#endif
}

/* The ranks of a part with the one before it and the one after it.  The filter is asked about both
 * at once, as most often neither is a merge.  The table is larger than the processor's own cache, so
 * it is fetched while the filter is asked: 2% of the time of unseen text, 1 to 5 by corpus. */
static inline void ranks_around(const struct vocabulary *v, uint32_t before, uint32_t part,
                                uint32_t after, uint32_t *rank_before, uint32_t *rank_after)
{
    uint64_t hash_before = pair_hash(v, before, part), hash_after = pair_hash(v, part, after);
    prefetch_pair(v, hash_before);
    prefetch_pair(v, hash_after);
    bool maybe_before = may_be_merge(v, hash_before), maybe_after = may_be_merge(v, hash_after);
    *rank_before = *rank_after = NO_RANK;
    if (maybe_before | maybe_after) {
        if (maybe_before)
            *rank_before = find_rank(v, hash_before, before, part);
        if (maybe_after)
            *rank_after = find_rank(v, hash_after, part, after);
    }
}

static inline uint32_t joined_id(const struct vocabulary *v, uint32_t rank)
{
    return v->joined ? v->joined[rank] : rank;
}

#endif
