/* The bytes of each token, by id, and the id of some bytes. */

#ifndef BPE_ENCODE_TOKENS_H
#define BPE_ENCODE_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TOKEN_SLACK = 16, /* bytes that can be read after every token, to copy 16 at once */
};

#define NO_TOKEN UINT32_MAX

struct token {
    uint32_t at, length; /* at is NO_TOKEN if no token has this id */
};

/* Decoding looks at one slot for each token, which is in one line of the processor's cache: its
 * bytes and, after them, its length or one of these. */
enum {
    SLOT_BYTES = 16,
    IN_SLOT = SLOT_BYTES - 1, /* the longest that fits */
    LONG_IN_SLOT = 254,       /* it does not fit */
    NOT_IN_SLOT = 255,        /* there is no such token */
};

/* Offsets look at one byte for each token: how many characters begin in it, up to MANY_CHARACTERS,
 * and whether its first byte is inside a character, which the token before it began. */
enum { MANY_CHARACTERS = 0x7F, BEGINS_INSIDE = 0x80 };

struct tokens {
    uint32_t n_ids;
    struct token *by_id;
    uint8_t *bytes;
    size_t used, room;
    uint8_t *by_slot; /* slots by id */
    uint8_t *lengths; /* the last byte of each slot: 16 times as many share a cache line */
    uint8_t *characters; /* for offsets, by id; 0 if there is no such token */

    uint32_t *slots; /* a hash table of ids with linear probing; NO_TOKEN in a free one */
    unsigned slot_bits;
    uint64_t seed;   /* nobody who chooses tokens knows it, so they cannot make them collide */
    uint64_t probes; /* how many slots were looked at to fill the table */
};

/* The functions that return int give 0, or -1 if memory is short; release in either case. */

int tokens_open(struct tokens *tokens, uint32_t n_ids, uint64_t seed);
void tokens_release(struct tokens *tokens);

/* Give an id, below n_ids, its bytes.  All of them are less than 4 GB. */
int tokens_add(struct tokens *tokens, uint32_t id, const uint8_t *bytes, size_t length);

/* Make it possible to find the tokens there are now. */
int tokens_index(struct tokens *tokens);

/* Fill the slots with the tokens there are now, and give back memory: none can be added. */
int tokens_fill_slots(struct tokens *tokens);

/* The id of the token of two strings of bytes, joined; NO_TOKEN if there is none. */
uint32_t tokens_find(const struct tokens *tokens, const uint8_t *left, size_t left_length,
                     const uint8_t *right, size_t right_length);

/* The same, but looks at `guess` first.  What the next merge makes mostly has the next id. */
uint32_t tokens_find_by_guess(const struct tokens *tokens, uint32_t guess, const uint8_t *left,
                              size_t left_length, const uint8_t *right, size_t right_length);

/* The length of a token that there is; the slots must be filled. */
static inline size_t token_length(const struct tokens *tokens, uint32_t id)
{
    uint8_t length = tokens->lengths[id];
    return length <= IN_SLOT ? length : tokens->by_id[id].length;
}

/* How many characters begin in a token, as far as its bytes tell. */
size_t count_characters(const struct tokens *tokens, uint32_t id);

static inline bool tokens_have(const struct tokens *tokens, uint32_t id)
{
    return id < tokens->n_ids && tokens->by_id[id].at != NO_TOKEN;
}

#endif
