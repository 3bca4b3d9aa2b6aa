/* Merges from ranks. */

#ifndef BPE_RANKS_H
#define BPE_RANKS_H

#include "tokens.h"
#include "vocabulary.h"

/* What finds the merges of a list of tokens, the lowest rank first. */
struct ranks {
    struct tokens tokens;         /* by place in the list */
    struct vocabulary vocabulary; /* only to find tokens */
    bool is_symbol[256];
    uint32_t *starts, *ranks; /* room for the parts of a token */
    size_t room;
};

/* Both functions that return int give 0, or -1 if memory is short; release in either case. */

int ranks_open(struct ranks *ranks, uint32_t n_tokens);
void ranks_release(struct ranks *ranks);

/* Read the tokens that were added to ranks->tokens. */
int ranks_index(struct ranks *ranks);

/* Find the two tokens that a token is made of.  Returns whether there are any; a token of one byte
 * has none. */
bool find_merge(struct ranks *ranks, uint32_t token, uint32_t *left, uint32_t *right);

#endif
