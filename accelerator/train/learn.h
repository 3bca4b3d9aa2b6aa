/* Learning merges from counted words: pre-tokens, or sequences of existing tokens. */

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
    /* The cells of a word: two for its count, its length, its original length, and the symbols. */
    WORD_LENGTH = 2,
    WORD_ROOM = 3,
    WORD_HEADER = 4,
};

/* The most that count times length of all words may add up to.  No pair can occur more often. */
#define MOST_SYMBOLS (INT64_C(1) << 62)
#define MOST_CELLS ((size_t)UINT32_MAX - 1) /* places have 32 bits, and NO_PLACE is one of them */
#define MOST_TOKENS ((size_t)INT32_MAX - BASE_TOKENS)

/* A token: where its bytes are, and how many first symbols it consists of. */
struct span {
    size_t at;
    uint32_t length, width;
};

/* A merge: its pair, and how often it occurred. */
struct learned_merge {
    uint64_t pair;
    int64_t count;
};

/* Tokens that must not be made: those with too many words, separated by spaces, and those that
 * contain one of some strings.  A token that contains a refused one is refused, too. */
struct refusal {
    uint32_t max_words; /* UINT32_MAX for any number */
    struct span *never; /* in `bytes` */
    size_t n_never;
    uint8_t *bytes;
};

/* What decides whether a token is refused. */
struct wording {
    uint32_t words;
    bool refused;
};

/* A symbol that a merge finds on one side of its pair: how often, and in which words. */
struct neighbor {
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
    /* The caller's settings. */
    size_t wanted; /* new tokens */
    int64_t min_frequency; /* at least 1 */
    uint64_t limit; /* tokens of this many bytes or more are made of two first symbols only */
    struct byte_map forbidden;
    bool refuses; /* whether there is a refusal */
    struct refusal refusal;

    /* The words, one after the other.  A word's place is the index of its first cell.
     *
     * Long words fill the cells from the end down: one cell per symbol, between two cells with
     * NO_SYMBOL.  A token takes as many cells as it has first symbols; its number is in the first
     * and the last of them.  A place in a long word is the first cell of a pair. */
    uint32_t *cells;
    size_t n_cells, long_start;
    struct long_word *longs; /* the last one first */
    size_t n_longs, longs_room;
    uint32_t symbols[256]; /* of the bytes, if the first tokens are bytes */

    /* Tokens by number; symbols are these numbers.  First the given ones, then those that merges
     * made. */
    struct span *tokens;
    struct learned_merge *merges; /* also by number */
    struct wording *wordings;     /* also by number; used only if there is a refusal */
    size_t n_base, n_tokens, tokens_room, merges_room, wordings_room;
    bool may_repeat;       /* whether a merge could make an existing token; see learn.c */
    struct byte_map known; /* all tokens, if so */
    uint8_t *bytes;
    size_t bytes_used, bytes_room;

    struct pair_counts counts;
    struct pair_heap heap;

    /* For one merge.  Side 0 is the new token itself as a neighbor, 2 * symbol + 2 a symbol before
     * the pair, 2 * symbol + 3 a symbol after it. */
    struct neighbor *neighbors;
    size_t neighbors_room;
    uint32_t *sides; /* that were seen */
    struct sighting *sightings;
    size_t n_sides, n_sightings, sightings_room;

    /* Where each pair is, if the caller chooses the pairs: see learner_list_pairs. */
    bool lists_pairs;
    struct pair_counts lists;
    int64_t joined; /* how often pairs were merged in total */

    size_t looked_at; /* symbols, in this call of learner_learn */
};

/* MADE_TWICE: a merge would make a token that already exists; this learner can't continue. */
enum learning { LEARNING, ENOUGH_TOKENS, TOO_RARE, NO_PAIRS, MADE_TWICE, NO_MEMORY };

/* A learner with room for words of this many cells.  NULL if memory is short. */
struct learner *learner_new(uint64_t seed, size_t n_cells);
void learner_free(struct learner *learner);

/* Give it its first tokens, before any words.  Each returns 0, or -1 if memory is short.
 *
 * learner_add_bytes: all bytes, in the order of their numbers.
 * learner_add_token: one token of at least one byte; it gets the next number.  Merges of such
 * tokens could make a token that already exists. */
int learner_add_bytes(struct learner *learner, const uint8_t alphabet[256]);
int learner_add_token(struct learner *learner, const uint8_t *bytes, size_t length);

/* Forbid a token, or refuse all tokens that contain a string.  Refuse before the first tokens. */
int learner_forbid(struct learner *learner, const uint8_t *bytes, size_t length);
int learner_refuse(struct learner *learner, const uint8_t *bytes, size_t length);

/* Add a word: a pre-token of at least two bytes, or at least two symbols (numbers of first tokens).
 * There must be room for its header and symbols.  Returns 0, or -1 if memory is short. */
int learner_add(struct learner *learner, const uint8_t *bytes, size_t length, int64_t count);
int learner_add_symbols(struct learner *learner, const uint32_t *symbols, size_t length,
                        int64_t count);

/* Count the pairs, after all words were added.  Returns 0, or -1 if memory is short. */
int learner_start(struct learner *learner);

/* Learn until about `symbols` symbols were looked at.  Returns the reason why it stopped. */
enum learning learner_learn(struct learner *learner, size_t symbols);

/* -- Pairs that a caller chooses -------------------------------------------------------------
 *
 * Several learners, one per text, can make the same merges: the caller chooses each merge by what
 * is best in one text or another.  Then all learners have the same tokens with the same numbers. */

/* Let the caller choose the pairs.  Call this before learner_start.  min_frequency must be 1: a
 * pair that is rare here may be chosen for another text.  Returns 0, or -1 if memory is short. */
int learner_list_pairs(struct learner *learner);

/* Find the most frequent pair, without removing it.  Returns false if no pair is left. */
bool learner_best(struct learner *learner, uint64_t *pair, int64_t *count);

/* Remove the pair that learner_best found. */
void learner_drop_best(struct learner *learner);

/* Merge a pair of existing tokens, even if it doesn't occur in this text.  Returns 0, or -1 if
 * memory is short. */
int learner_join(struct learner *learner, uint64_t pair);

#endif
