/* Counting adjacent tokens in text that is already encoded: pairs, and runs.
 *
 * Text is passed as numbers of tokens.  Numbers of NO_JOIN and above separate tokens that no merge
 * joins. */

#ifndef BPE_TRAIN_RUNS_H
#define BPE_TRAIN_RUNS_H

#include <stddef.h>
#include <stdint.h>

#include "train/byte_map.h"
#include "train/pair_counts.h"

enum {
    NO_JOIN = 0x10FFFF,
    PACKED = 3, /* bytes of a number in the key of a run, the lowest first */
};

/* Counts of pairs, in bounded memory.
 *
 * When there are more than `most`, the rarer half is forgotten.  A pair that is missing, or came
 * back, occurred at most `missed` times more often than counted: lossy counting (Manku and Motwani,
 * VLDB 2002). */
struct pair_sums {
    struct pair_counts counts;
    size_t most;
    int64_t missed;
};

int pair_sums_open(struct pair_sums *sums, size_t most);
void pair_sums_close(struct pair_sums *sums);

/* Count the pairs of a text.  Returns 0, or -1 if memory is short. */
int pair_sums_add(struct pair_sums *sums, const uint32_t *text, size_t n);

/* A pair and its count, as callers see them. */
struct counted_pair {
    uint32_t tokens[2];
    int64_t count;
};

/* Add pairs of another counter, which may have forgotten some.  Returns 0, -1 if memory is short,
 * or 1 if a number is out of range; then some may be added. */
int pair_sums_merge(struct pair_sums *sums, const struct counted_pair *pairs, size_t n,
                    int64_t missed);

/* How often the n-th most frequent pair occurs, counting from 1; 0 if there are fewer.
 * Returns -1 if memory is short. */
int64_t pair_sums_nth(const struct pair_sums *sums, size_t n);

/* How often each run occurs: text is cut where a pair is not kept.  One token alone is not a run. */
struct run_sums {
    struct pair_counts keep;
    struct byte_map runs; /* keys have PACKED bytes for each number */
    uint8_t *key;
    size_t key_room;
};

int run_sums_open(struct run_sums *sums, uint64_t seed);
void run_sums_close(struct run_sums *sums);

/* Both return 0, or -1 if memory is short. */
int run_sums_keep(struct run_sums *sums, uint32_t left, uint32_t right);
int run_sums_add(struct run_sums *sums, const uint32_t *text, size_t n);

static inline uint32_t unpack(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16;
}

#endif
