/* Merges from ranks. */

#ifndef BPE_ENCODE_RANKS_H
#define BPE_ENCODE_RANKS_H

#include "encode/merge.h"
#include "encode/tokens.h"
#include "encode/vocabulary.h"

enum { MERGED_UP_TO = 256 }; /* bytes */

/* What finds the merges of a list of tokens, the lowest rank first. */
struct ranks {
    struct tokens tokens;         /* by place in the list */
    struct vocabulary vocabulary; /* the merges found so far; ids and ranks are places */
    bool is_symbol[256];
    struct merge_memory merging;
    uint32_t ids[MERGED_UP_TO];

    /* For tokens that those merges do not make: a way to find tokens by their bytes, made when it
     * is needed first, and room for the parts of one. */
    struct vocabulary by_bytes;
    uint32_t *starts, *ranks;
};

/* The functions that return int give -1 if memory is short; release in any case. */

int ranks_open(struct ranks *ranks, uint32_t n_tokens, uint64_t seed);
void ranks_release(struct ranks *ranks);

/* Read the tokens, which were added to ranks->tokens. */
int ranks_read(struct ranks *ranks);

/* Find the two tokens that a token is made of; to be called for each in turn, from 0.  Returns 1,
 * or 0 if there are none, as for a token of one byte. */
int find_merge(struct ranks *ranks, uint32_t token, uint32_t *left, uint32_t *right);

#endif
