/* Counting what occurs side by side in text that is already encoded: pairs of tokens, and runs.
 *
 * Text is given as numbers of tokens.  Numbers of NO_JOIN and above stand between what no merge
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
 * The rarer half is forgotten when there are more than `most`.  A pair that is not there, or came
 * back, occurred at most `missed` times more often than it says: lossy counting (Manku and Motwani,
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

/* A pair and its count, as a caller has them. */
struct counted_pair {
    uint32_t tokens[2];
    int64_t count;
};

/* Add pairs that another one has counted, and forgot some of.  Returns 0, or -1 if memory is short,
 * or 1 if a number is out of range; then some may be added. */
int pair_sums_merge(struct pair_sums *sums, const struct counted_pair *pairs, size_t n,
                    int64_t missed);

/* How often the pair at place n of the most frequent occurs, the first at 1; 0 if there are fewer.
 * Returns -1 if memory is short. */
int64_t pair_sums_nth(const struct pair_sums *sums, size_t n);

/* How often each run occurs: text is cut where a pair is not kept.  One token alone is not a run. */
struct run_sums {
    struct pair_counts keep;
    struct byte_map runs; /* keys are of PACKED bytes a number */
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
