/* Tokens: their bytes, and a hash table of them. */

#include <stdlib.h>
#include <string.h>

#include "encode/tokens.h"
#include "base/hash.h"
#include "base/table.h"

enum { SHORT_JOINED = 64 }; /* bytes that are copied to be hashed, 8 at a time */

int tokens_open(struct tokens *tokens, uint32_t n_ids, uint64_t seed)
{
    memset(tokens, 0, sizeof *tokens);
    tokens->n_ids = n_ids;
    tokens->seed = seed;
    tokens->by_id = malloc((n_ids + (size_t)1) * sizeof *tokens->by_id);
    if (!tokens->by_id)
        return -1;
    memset(tokens->by_id, 0xFF, n_ids * sizeof *tokens->by_id);
    return 0;
}

void tokens_release(struct tokens *tokens)
{
    free(tokens->by_id);
    free(tokens->bytes);
    free(tokens->slots);
    table_free(tokens->by_slot);
    free(tokens->lengths);
    free(tokens->characters);
    memset(tokens, 0, sizeof *tokens);
}

int tokens_add(struct tokens *tokens, uint32_t id, const uint8_t *bytes, size_t length)
{
    if (length > UINT32_MAX - TOKEN_SLACK - tokens->used)
        return -1;
    size_t needed = tokens->used + length + TOKEN_SLACK;
    if (needed > tokens->room) {
        size_t room = needed + needed / 2;
        uint8_t *larger = realloc(tokens->bytes, room);
        if (!larger)
            return -1;
        memset(larger + tokens->room, 0, room - tokens->room); /* the slack is read */
        tokens->bytes = larger;
        tokens->room = room;
    }
    memcpy(tokens->bytes + tokens->used, bytes, length);
    tokens->by_id[id] = (struct token){(uint32_t)tokens->used, (uint32_t)length};
    tokens->used += length;
    return 0;
}

/* A hash of two strings as if they were one. */
static uint64_t hash_joined(uint64_t seed, const uint8_t *left, size_t left_length,
                            const uint8_t *right, size_t right_length)
{
    uint8_t joined[SHORT_JOINED];
    if (left_length + right_length <= SHORT_JOINED) {
        memcpy(joined, left, left_length);
        memcpy(joined + left_length, right, right_length);
        return seeded_hash_long(seed, joined, left_length + right_length);
    }
    uint64_t hash = seed;
    for (size_t i = 0; i < left_length; i++)
        hash = fold_product(hash ^ left[i], HASH_FACTOR);
    for (size_t i = 0; i < right_length; i++)
        hash = fold_product(hash ^ right[i], HASH_FACTOR);
    return hash;
}

int tokens_index(struct tokens *tokens)
{
    for (tokens->slot_bits = 9; (uint64_t)tokens->n_ids * 2 > (uint64_t)1 << tokens->slot_bits;)
        tokens->slot_bits++;
    size_t bytes = ((size_t)1 << tokens->slot_bits) * sizeof *tokens->slots;
    tokens->slots = malloc(bytes);
    if (!tokens->slots)
        return -1;
    memset(tokens->slots, 0xFF, bytes);
    size_t mask = ((size_t)1 << tokens->slot_bits) - 1;
    for (uint32_t id = 0; id < tokens->n_ids; id++) {
        if (!tokens_have(tokens, id))
            continue;
        const struct token *token = &tokens->by_id[id];
        uint64_t hash = hash_joined(tokens->seed, tokens->bytes + token->at, token->length,
                                    tokens->bytes, 0);
        size_t slot = hash >> (64 - tokens->slot_bits);
        for (; tokens->slots[slot] != NO_TOKEN; tokens->probes++)
            slot = (slot + 1) & mask;
        tokens->probes++;
        tokens->slots[slot] = id;
    }
    return 0;
}

/* Whether a token is two strings, joined. */
static bool is_joined(const struct tokens *tokens, uint32_t id, const uint8_t *left,
                      size_t left_length, const uint8_t *right, size_t right_length)
{
    const struct token *token = &tokens->by_id[id];
    const uint8_t *bytes = tokens->bytes + token->at;
    return token->length == left_length + right_length && memcmp(bytes, left, left_length) == 0 &&
           memcmp(bytes + left_length, right, right_length) == 0;
}

uint32_t tokens_find(const struct tokens *tokens, const uint8_t *left, size_t left_length,
                     const uint8_t *right, size_t right_length)
{
    uint64_t hash = hash_joined(tokens->seed, left, left_length, right, right_length);
    size_t mask = ((size_t)1 << tokens->slot_bits) - 1;
    for (size_t slot = hash >> (64 - tokens->slot_bits);; slot = (slot + 1) & mask) {
        uint32_t id = tokens->slots[slot]; /* half of the slots are free, so this ends */
        if (id == NO_TOKEN || is_joined(tokens, id, left, left_length, right, right_length))
            return id;
    }
}

uint32_t tokens_find_by_guess(const struct tokens *tokens, uint32_t guess, const uint8_t *left,
                              size_t left_length, const uint8_t *right, size_t right_length)
{
    if (tokens_have(tokens, guess) &&
        is_joined(tokens, guess, left, left_length, right, right_length))
        return guess;
    return tokens_find(tokens, left, left_length, right, right_length);
}

static bool is_inside(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

size_t count_characters(const struct tokens *tokens, uint32_t id)
{
    struct token token = tokens->by_id[id];
    size_t n = 0;
    for (const uint8_t *byte = tokens->bytes + token.at, *end = byte + token.length; byte < end;)
        n += !is_inside(*byte++);
    return n;
}

static uint8_t characters_of(const struct tokens *tokens, uint32_t id)
{
    struct token token = tokens->by_id[id];
    if (!tokens_have(tokens, id) || !token.length)
        return 0;
    size_t n = count_characters(tokens, id);
    bool inside = is_inside(tokens->bytes[token.at]);
    return (uint8_t)((n < MANY_CHARACTERS ? n : MANY_CHARACTERS) | (inside ? BEGINS_INSIDE : 0));
}

int tokens_fill_slots(struct tokens *tokens)
{
    tokens->by_slot = table_new((size_t)tokens->n_ids * SLOT_BYTES + 1);
    tokens->lengths = malloc(tokens->n_ids + (size_t)1);
    tokens->characters = malloc(tokens->n_ids + (size_t)1);
    if (!tokens->by_slot || !tokens->lengths || !tokens->characters)
        return -1;
    for (uint32_t id = 0; id < tokens->n_ids; id++) {
        uint8_t *slot = tokens->by_slot + (size_t)id * SLOT_BYTES;
        struct token token = tokens->by_id[id];
        if (!tokens_have(tokens, id)) {
            slot[IN_SLOT] = NOT_IN_SLOT;
        } else if (token.length > IN_SLOT) {
            slot[IN_SLOT] = LONG_IN_SLOT;
        } else {
            slot[IN_SLOT] = (uint8_t)token.length;
            memcpy(slot, tokens->bytes + token.at, token.length);
        }
        tokens->lengths[id] = slot[IN_SLOT];
        tokens->characters[id] = characters_of(tokens, id);
    }
    uint8_t *smaller = tokens->bytes ? realloc(tokens->bytes, tokens->used + TOKEN_SLACK) : NULL;
    if (smaller) {
        tokens->bytes = smaller;
        tokens->room = tokens->used + TOKEN_SLACK;
    }
    return 0;
}
