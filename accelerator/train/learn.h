/* Learning merges from counted pre-tokens. */

#ifndef BPE_TRAIN_LEARN_H
#define BPE_TRAIN_LEARN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/byte_map.h"
#include "train/pair_counts.h"
#include "train/pair_heap.h"

enum {
    BASE_TOKENS = 256,
    /* The cells of a word: two with its count, its length, its length at first, and the symbols. */
    WORD_LENGTH = 2,
    WORD_ROOM = 3,
    WORD_HEADER = 4,
};

/* The sum of count times length of all words may be so much; no pair can occur more often. */
#define MOST_SYMBOLS (INT64_C(1) << 62)
#define MOST_CELLS ((size_t)UINT32_MAX - 1) /* places are 32 bits, and one means none */
#define MOST_TOKENS ((size_t)INT32_MAX - BASE_TOKENS)

struct span {
    size_t at, length;
};

/* What a merge finds on one side of its pair: one symbol, how often and in which words. */
struct neighbour {
    int64_t count;
    uint64_t places; /* where they are collected, as in struct pair_entry */
    uint32_t last;   /* the word where it was last seen, or NO_PLACE */
    uint32_t n_places;
};

/* A pre-token of more than LONG_WORD bytes. */
struct long_word {
    uint32_t start, length; /* in cells */
    int64_t count;
};

struct sighting {
    uint32_t side, place;
};

struct learner {
    /* What was asked for. */
    size_t wanted; /* new tokens */
    int64_t min_frequency; /* at least 1 */
    uint64_t limit; /* a token of so many bytes is not made, unless it has two */
    struct byte_map forbidden;

    /* The words, one after the other.  A place in one is the index of its first cell.
     *
     * Long words stand from the end downwards, in as many cells as they have bytes, each between
     * two cells with NO_SYMBOL.  A token takes as many cells as it has bytes, and its symbol is in
     * the first and the last of them.  A place in one is the first cell of a pair. */
    uint32_t *cells;
    size_t n_cells, long_start;
    struct long_word *longs; /* the last one first */
    size_t n_longs, longs_room;
    uint32_t symbols[256]; /* of bytes */

    /* Tokens by number; symbols are these numbers.  First 256 bytes, then what was made. */
    struct span *tokens;
    uint64_t *merges; /* the pairs, also by number */
    size_t n_tokens, tokens_room, merges_room;
    uint8_t *bytes;
    size_t bytes_used, bytes_room;

    struct pair_counts counts;
    struct pair_heap heap;

    /* For one merge.  Side 0 is for the merge itself as a neighbour, 2 * symbol + 2 for a symbol
     * before the pair, 2 * symbol + 3 for one after it. */
    struct neighbour *neighbours;
    size_t neighbours_room;
    uint32_t *sides; /* that were seen */
    struct sighting *sightings;
    size_t n_sides, n_sightings, sightings_room;

    size_t looked_at; /* symbols, in this call of learner_learn */
};

enum learning { LEARNING, ENOUGH_TOKENS, TOO_RARE, NO_PAIRS, NO_MEMORY };

/* A learner with room for words of so many cells.  The alphabet has all bytes in the order of their
 * numbers.  NULL if memory is short. */
struct learner *learner_new(uint64_t seed, size_t n_cells, const uint8_t alphabet[256]);
void learner_free(struct learner *learner);

int learner_forbid(struct learner *learner, const uint8_t *bytes, size_t length);

/* Add a pre-token of at least two bytes; there must be room for its header and bytes.  Returns 0,
 * or -1 if memory is short. */
int learner_add(struct learner *learner, const uint8_t *bytes, size_t length, int64_t count);

/* Count the pairs, once all words are there.  Returns 0, or -1 if memory is short. */
int learner_start(struct learner *learner);

/* Learn, for a while: until about so many symbols were looked at.  Tells why it returns. */
enum learning learner_learn(struct learner *learner, size_t symbols);

#endif
