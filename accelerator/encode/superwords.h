/* Vocabularies with tokens of several words.
 *
 * Their pre-tokens are long, sentences or whole texts, so that few come up twice and merging them
 * from bytes takes long.  But in a vocabulary in order, all merges of words come before the first
 * that joins two words, and merging can be done in two stages:
 *
 * 1. No merge of words crosses a place where two bytes meet that are side by side in no word.  Cut
 *    there, a pre-token falls into parts that the cache knows, with the ids that merges of words
 *    give.
 * 2. No other merge crosses a place where two such ids meet that are side by side in no superword.
 *    Cut there, the ids fall into short runs; most are one id, and each is merged by itself. */

#ifndef BPE_ENCODE_SUPERWORDS_H
#define BPE_ENCODE_SUPERWORDS_H

#include "encode/tokens.h"
#include "encode/vocabulary.h"

enum {
    MEETINGS = 1 << 10, /* numbers of 64 bits, for a bit of each two bytes */
};

struct superwords {
    struct vocabulary words;     /* only the merges of the first stage */
    const struct tokens *tokens; /* not released with it */
    uint64_t meet[MEETINGS];     /* bit first << 8 | second is set if a word has these two bytes */
    uint64_t *neighbors;         /* a filter of the ids that are side by side in a superword */
    unsigned neighbor_bits;
};

/* Prepare a vocabulary.  NULL if it has no superwords, if it can't be done in two stages, or if
 * memory is short: then pre-tokens are merged as a whole, which gives the same ids. */
struct superwords *superwords_new(const struct vocabulary *vocabulary, const struct tokens *tokens);
void superwords_free(struct superwords *superwords);

/* Note which bytes are side by side in a token. */
void note_meetings(uint64_t meet[MEETINGS], const uint8_t *bytes, size_t length);

static inline bool may_meet(const uint64_t meet[MEETINGS], const uint8_t *second)
{
    unsigned pair = (unsigned)second[-1] << 8 | second[0];
    return meet[pair >> 6] >> (pair & 63) & 1;
}

/* Whether two ids of the first stage may be side by side in a superword. */
static inline bool may_join(const struct superwords *s, uint32_t left, uint32_t right)
{
    uint64_t bit = pair_hash(&s->words, left, right) >> (64 - s->neighbor_bits);
    return s->neighbors[bit >> 6] >> (bit & 63) & 1;
}

#endif
