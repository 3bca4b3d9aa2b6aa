/* Learning merges from counted words: pre-tokens, or sequences of tokens that are there already. */

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

/* A token: where its bytes are, and how many symbols it was made of. */
struct span {
    size_t at;
    uint32_t length, width;
};

/* A merge: its pair, and how often that occurred. */
struct learned_merge {
    uint64_t pair;
    int64_t count;
};

/* Tokens that must not be made: those of too many words, with spaces between them, and those with
 * one of some strings in them.  What is refused is also refused with more around it. */
struct refusal {
    uint32_t max_words; /* UINT32_MAX for any number */
    struct span *never; /* in `bytes` */
    size_t n_never;
    uint8_t *bytes;
};

/* What a refusal needs to know of a token. */
struct wording {
    uint32_t words;
    bool refused;
};

/* What a merge finds on one side of its pair: one symbol, how often and in which words. */
struct neighbour {
    int64_t count;
    uint64_t places; /* where they are collected, as in struct pair_entry */
    uint32_t last;   /* the word where it was last seen, or NO_PLACE */
    uint32_t n_places;
};

/* A word of more than LONG_WORD symbols. */
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
    uint64_t limit; /* tokens this long, in bytes, are not made, unless of two symbols */
    struct byte_map forbidden;
    bool refuses; /* whether there is a refusal */
    struct refusal refusal;

    /* The words, one after the other.  A place in one is the index of its first cell.
     *
     * Long words stand from the end downwards, in as many cells as they have symbols, each between
     * two cells with NO_SYMBOL.  A token takes as many cells as it was made of symbols, and its
     * own is in the first and the last of them.  A place in one is the first cell of a pair. */
    uint32_t *cells;
    size_t n_cells, long_start;
    struct long_word *longs; /* the last one first */
    size_t n_longs, longs_room;
    uint32_t symbols[256]; /* of bytes, where those are the first tokens */

    /* Tokens by number; symbols are these numbers.  First those that were given, then what was
     * made. */
    struct span *tokens;
    struct learned_merge *merges; /* also by number */
    struct wording *wordings;     /* the same; of use to a refusal only */
    size_t n_base, n_tokens, tokens_room, merges_room, wordings_room;
    bool may_repeat;       /* whether a merge could make a token that is there; see learn.c */
    struct byte_map known; /* all tokens, if it could */
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

    /* Where each pair is, for who chooses the pairs: see learner_list_pairs. */
    bool lists_pairs;
    struct pair_counts lists;
    int64_t joined; /* how often pairs were merged, all in all */

    size_t looked_at; /* symbols, in this call of learner_learn */
};

/* MADE_TWICE: a merge would make a token that is there; this learner can't go on. */
enum learning { LEARNING, ENOUGH_TOKENS, TOO_RARE, NO_PAIRS, MADE_TWICE, NO_MEMORY };

/* A learner with room for words of this many cells.  NULL if memory is short. */
struct learner *learner_new(uint64_t seed, size_t n_cells);
void learner_free(struct learner *learner);

/* Give it its first tokens, before any words.  Each returns 0, or -1 if memory is short.
 *
 * learner_add_bytes: all bytes, in the order of their numbers.
 * learner_add_token: one token of at least one byte; it gets the next number.  Of tokens given so,
 * merges could make one that is there. */
int learner_add_bytes(struct learner *learner, const uint8_t alphabet[256]);
int learner_add_token(struct learner *learner, const uint8_t *bytes, size_t length);

/* Say what must not be made; a refusal is said before the first tokens. */
int learner_forbid(struct learner *learner, const uint8_t *bytes, size_t length);
int learner_refuse(struct learner *learner, const uint8_t *bytes, size_t length);

/* Add a word: a pre-token of at least two bytes, or at least two symbols, which are numbers of the
 * first tokens; there must be room for its header and symbols.  Returns 0, or -1 if memory is
 * short. */
int learner_add(struct learner *learner, const uint8_t *bytes, size_t length, int64_t count);
int learner_add_symbols(struct learner *learner, const uint32_t *symbols, size_t length,
                        int64_t count);

/* Count the pairs, once all words are there.  Returns 0, or -1 if memory is short. */
int learner_start(struct learner *learner);

/* Learn, for a while: until about so many symbols were looked at.  Tells why it returns. */
enum learning learner_learn(struct learner *learner, size_t symbols);

/* -- Pairs that a caller chooses -------------------------------------------------------------
 *
 * Several learners, of one text each, may make the same merges: those that a caller chooses, by what
 * is best in one or the other.  Then each has all tokens, with the same numbers. */

/* Say so, before learner_start; min_frequency must be 1, as a pair that is rare here may be chosen
 * for another text.  Returns 0, or -1 if memory is short. */
int learner_list_pairs(struct learner *learner);

/* The most frequent pair, which stays.  Returns false if none is left. */
bool learner_best(struct learner *learner, uint64_t *pair, int64_t *count);

/* Forget the pair that learner_best has found. */
void learner_drop_best(struct learner *learner);

/* Merge a pair of tokens that are there.  It may be nowhere in this text.  Returns 0, or -1 if
 * memory is short. */
int learner_join(struct learner *learner, uint64_t pair);

#endif
