/* Loading a vocabulary. */

#include <stdlib.h>
#include <string.h>

#include "encode/vocabulary.h"
#include "base/table.h"

enum {
    /* Pairs that take more probes were chosen to collide.  Published vocabularies need 2 to 3 in
     * the mean and 53 to 135 for one pair, so they are never hashed again. */
    MOST_PROBES = 512,  /* for one pair */
    MEAN_PROBES = 8,    /* for all of them */
    FREE_PROBES = 8192, /* beyond the mean, for small tables */
    MOST_REHASHED = 64,
};

/* -- Bits that tell what may be there -------------------------------------------------------- */

static bool has_bit(const uint64_t *filter, uint64_t hash)
{
    uint64_t bit = hash >> (64 - FILTER_BITS);
    return filter[bit >> 6] >> (bit & 63) & 1;
}

static void set_bit(uint64_t *filter, uint64_t hash)
{
    uint64_t bit = hash >> (64 - FILTER_BITS);
    filter[bit >> 6] |= (uint64_t)1 << (bit & 63);
}

/* -- Merges ---------------------------------------------------------------------------------- */

static uint64_t *new_pairs(unsigned bits)
{
    size_t size = sizeof(uint64_t) << bits;
    uint64_t *pairs = table_new(size);
    if (pairs)
        memset(pairs, 0xFF, size);
    return pairs;
}

/* Whether ids rise with the rank, so that they can replace it. */
static bool ids_rise(const struct merge *merges, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (merges[i].joined <= merges[i - 1].joined)
            return false;
    return true;
}

/* Whether each merge comes after all those that make its parts. */
static int find_order(struct vocabulary *v, const struct merge *merges, size_t n)
{
    uint32_t *last_made = calloc(v->n_ids + 1, sizeof *last_made); /* 1 + rank of the last */
    if (!last_made)
        return -1;
    for (size_t i = 0; i < n; i++)
        last_made[merges[i].joined] = (uint32_t)i + 1;
    v->ordered = true;
    for (size_t i = 0; i < n; i++)
        if (last_made[merges[i].left] > i || last_made[merges[i].right] > i)
            v->ordered = false;
    free(last_made);
    return 0;
}

int vocabulary_open(struct vocabulary *v, uint32_t n_ids, const uint32_t byte_ids[256],
                    size_t n_merges, uint64_t seed)
{
    memset(v, 0, sizeof *v);
    v->n_ids = n_ids;
    v->seed = seed;
    v->pair_factor = HASH_FACTOR;
    memcpy(v->byte_ids, byte_ids, sizeof v->byte_ids);
    /* At most 4 of 5 slots are taken: the smaller the table, the more of it stays in the
     * processor's cache. */
    for (v->pair_bits = 4; ((size_t)1 << v->pair_bits) * 4 / 5 < n_merges + 1;)
        v->pair_bits++;
    v->pairs = new_pairs(v->pair_bits);
    v->filter = calloc((1 << FILTER_BITS) / 64, sizeof *v->filter);
    v->byte_pair_ranks = malloc(65536 * sizeof *v->byte_pair_ranks);
    if (!v->pairs || !v->filter || !v->byte_pair_ranks)
        return -1;
    for (unsigned pair = 0; pair < 65536; pair++)
        v->byte_pair_ranks[pair] = NO_RANK;
    return 0;
}

/* Put a pair into the table.  Returns how many slots were looked at. */
static unsigned put_pair(struct vocabulary *v, uint64_t key, uint32_t rank)
{
    uint64_t hash = pair_hash(v, (uint32_t)(key >> ID_BITS), (uint32_t)key & ID_MASK);
    size_t mask = ((size_t)1 << v->pair_bits) - 1, slot = hash >> (64 - v->pair_bits);
    unsigned probes = 1;
    for (; v->pairs[slot] != UINT64_MAX && v->pairs[slot] >> RANK_BITS != key; probes++)
        slot = (slot + 1) & mask;
    v->pairs[slot] = key << RANK_BITS | rank;
    set_bit(v->filter, hash);
    v->pairs_put++;
    v->pair_probes += probes;
    v->probes += probes;
    return probes;
}

/* Hash all pairs with another factor, which nobody can know.  If memory is short, they stay where
 * they are: that is slower, not wrong. */
static void rehash_pairs(struct vocabulary *v)
{
    uint64_t *old = v->pairs, *fresh = new_pairs(v->pair_bits);
    v->times_rehashed++;
    if (!fresh)
        return;
    v->pairs = fresh;
    v->pair_factor = fold_product(v->seed + v->times_rehashed, HASH_FACTOR) | 1;
    v->pairs_put = v->pair_probes = 0;
    memset(v->filter, 0, (1 << FILTER_BITS) / 8);
    for (size_t slot = 0; slot < (size_t)1 << v->pair_bits; slot++)
        if (old[slot] != UINT64_MAX)
            put_pair(v, old[slot] >> RANK_BITS, (uint32_t)old[slot] & NO_RANK);
    table_free(old);
}

void vocabulary_add_pair(struct vocabulary *v, uint32_t left, uint32_t right, uint32_t rank)
{
    unsigned probes = put_pair(v, (uint64_t)left << ID_BITS | right, rank);
    bool is_slow = probes > MOST_PROBES || v->pair_probes > MEAN_PROBES * v->pairs_put + FREE_PROBES;
    if (is_slow && v->times_rehashed < MOST_REHASHED)
        rehash_pairs(v);
}

int vocabulary_load(struct vocabulary *v, uint32_t n_ids, const uint32_t byte_ids[256],
                    const struct merge *merges, size_t n_merges, uint64_t seed)
{
    if (vocabulary_open(v, n_ids, byte_ids, n_merges, seed) < 0 || find_order(v, merges, n_merges) < 0)
        return -1;
    bool plain = ids_rise(merges, n_merges);
    v->n_ranks = plain ? n_ids : (uint32_t)n_merges;
    if (!plain && !(v->joined = malloc(n_merges * sizeof *v->joined)))
        return -1;
    for (size_t i = 0; i < n_merges; i++) {
        uint32_t rank = plain ? merges[i].joined : (uint32_t)i;
        vocabulary_add_pair(v, merges[i].left, merges[i].right, rank);
        if (!plain)
            v->joined[i] = merges[i].joined;
    }
    for (unsigned pair = 0; pair < 65536; pair++)
        v->byte_pair_ranks[pair] = rank_of(v, byte_ids[pair >> 8], byte_ids[pair & 0xFF]);
    return 0;
}

/* -- Tokens that need no merging ------------------------------------------------------------- */

/* What the bit of some bytes depends on; their key has the length in it. */
static uint64_t whole_hash(const struct vocabulary *v, struct key key, const uint8_t *bytes,
                           size_t length)
{
    return length <= KEY_BYTES ? whole_key_hash(v, key) : seeded_hash_long(v->seed, bytes, length);
}

static void add_whole(struct vocabulary *v, uint64_t hash, struct key key, uint32_t id)
{
    size_t mask = ((size_t)1 << v->whole_bits) - 1;
    size_t slot = hash >> (64 - v->whole_bits);
    for (v->probes++; v->whole_keys[slot].high; v->probes++)
        slot = (slot + 1) & mask;
    v->whole_keys[slot].low = key.low;
    v->whole_keys[slot].high = key.high | (uint64_t)id << WHOLE_ID_SHIFT;
}

static void add_long(struct vocabulary *v, uint64_t hash, uint32_t id)
{
    size_t mask = ((size_t)1 << v->whole_long_bits) - 1;
    size_t slot = hash >> (64 - v->whole_long_bits);
    for (v->probes++; v->whole_longs[slot].id != NO_TOKEN; v->probes++)
        slot = (slot + 1) & mask;
    v->whole_longs[slot] = (struct long_token){(uint32_t)hash, id};
}

static uint32_t find_long(const struct vocabulary *v, uint64_t hash, const uint8_t *bytes,
                          size_t length)
{
    size_t mask = ((size_t)1 << v->whole_long_bits) - 1;
    for (size_t slot = hash >> (64 - v->whole_long_bits);; slot = (slot + 1) & mask) {
        struct long_token found = v->whole_longs[slot]; /* some slot is free, so this ends */
        if (found.id == NO_TOKEN)
            return NO_TOKEN;
        if (found.tag != (uint32_t)hash)
            continue;
        struct token token = v->whole->by_id[found.id];
        if (token.length == length && memcmp(v->whole->bytes + token.at, bytes, length) == 0)
            return found.id;
    }
}

/* Make a table for the tokens that are longer than the keys, half of it free. */
static int allocate_longs(struct vocabulary *v, const struct tokens *tokens)
{
    size_t n = 0;
    for (uint32_t id = 0; id < tokens->n_ids; id++)
        n += tokens_have(tokens, id) && tokens->by_id[id].length > WHOLE_KEY_BYTES;
    for (v->whole_long_bits = 4; (size_t)1 << v->whole_long_bits < 2 * (n + 1);)
        v->whole_long_bits++;
    size_t size = sizeof *v->whole_longs << v->whole_long_bits;
    v->whole_longs = table_new(size);
    if (!v->whole_longs)
        return -1;
    memset(v->whole_longs, 0xFF, size);
    return 0;
}

int vocabulary_set_whole(struct vocabulary *v, const struct tokens *tokens)
{
    for (v->whole_bits = 9; ((size_t)1 << v->whole_bits) * 4 / 5 < tokens->n_ids + (size_t)1;)
        v->whole_bits++;
    v->whole_filter = calloc((1 << FILTER_BITS) / 64, sizeof *v->whole_filter);
    v->whole_keys = table_new(sizeof *v->whole_keys << v->whole_bits);
    if (!v->whole_filter || !v->whole_keys || allocate_longs(v, tokens) < 0)
        return -1;
    v->whole = tokens;
    for (uint32_t id = 0; id < tokens->n_ids; id++) {
        struct token token = tokens->by_id[id];
        if (!tokens_have(tokens, id) || !token.length)
            continue;
        const uint8_t *bytes = tokens->bytes + token.at;
        struct key key = {0, 0};
        if (token.length <= KEY_BYTES)
            key = with_length(make_key_safely(bytes, token.length), token.length);
        uint64_t hash = whole_hash(v, key, bytes, token.length);
        set_bit(v->whole_filter, hash);
        if (token.length <= WHOLE_KEY_BYTES)
            add_whole(v, hash, key, id);
        else
            add_long(v, hash, id);
    }
    return 0;
}

uint32_t whole_token(const struct vocabulary *v, struct key key, const uint8_t *bytes,
                     size_t length)
{
    key = with_length(key, length);
    uint64_t hash = whole_hash(v, key, bytes, length);
    if (!has_bit(v->whole_filter, hash))
        return NO_TOKEN;
    if (length > WHOLE_KEY_BYTES)
        return find_long(v, hash, bytes, length);
    const size_t mask = ((size_t)1 << v->whole_bits) - 1;
    for (size_t slot = hash >> (64 - v->whole_bits);; slot = (slot + 1) & mask) {
        struct key found = v->whole_keys[slot]; /* some slot is free, so this ends */
        if (found.low == key.low && (found.high & ~((uint64_t)ID_MASK << WHOLE_ID_SHIFT)) == key.high)
            return whole_key_id(found.high);
        if (!found.high)
            return NO_TOKEN;
    }
}

/* -- All of it ------------------------------------------------------------------------------- */

void vocabulary_release(struct vocabulary *v)
{
    table_free(v->pairs);
    free(v->filter);
    free(v->byte_pair_ranks);
    free(v->joined);
    free(v->whole_filter);
    table_free(v->whole_keys);
    table_free(v->whole_longs);
    memset(v, 0, sizeof *v);
}
