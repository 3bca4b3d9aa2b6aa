/* The pre-tokens seen before, with their ids.
 *
 * Three tables, by length; most pre-tokens of real text are in the first.
 *
 *   up to 11 bytes   16 bytes an entry: the pre-token itself and up to two ids, 20 bits each.
 *                    Four share a cache line, which is all that a look-up touches.
 *   12 to 15 bytes   32 bytes an entry: the pre-token, its length, and up to three ids
 *   16 to 256 bytes  hash and length, the rest in a store of bytes and one of ids
 *
 * Pre-tokens are compared in full, never by a hash.  All tables are bounded: in the first two, a
 * new entry evicts the oldest of its line; the last is emptied when it is full, and so is the
 * store of ids that did not fit.
 *
 * A cache belongs to one thread at a time. */

#ifndef BPE_ENCODE_CACHE_H
#define BPE_ENCODE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/key.h"
#include "encode/vocabulary.h"

enum {
    SHORT_BYTES = 11,
    LONG_BYTES = 256,
    ENTRIES_PER_LINE = 4,
    FIRST_LINE_BITS = 13, /* half a megabyte; grows fourfold when half full */
    LAST_LINE_BITS = 16,  /* to 4 MB */
    MEDIUM_BITS = 15,     /* 1 MB */
    LONG_TABLE_BITS = 17, /* 3 MB, of which a text without long words touches little */
    STORE_UNIT = 4,       /* ids; places in the store are counted in these */
};

/* In place of a second id. */
#define NO_ID ((1u << ID_BITS) - 1)   /* there is only one */
#define STORED_IDS ((1u << ID_BITS) - 2) /* the first is a place in the store */

/* A short pre-token, padded with zeros: its first 8 bytes; 3 more, below the two ids.  One that
 * ends in a zero is not kept here.  Both words are 0 in a free entry. */
struct short_entry {
    uint64_t low, high;
};

enum { HIGH_KEY_BITS = 24 };

struct short_line {
    struct short_entry entries[ENTRIES_PER_LINE];
};

/* The length is the highest byte of `high`, so that no two pre-tokens look alike.  The count is 0
 * in a free entry. */
struct medium_entry {
    uint64_t low, high;
    uint32_t count; /* above 3, ids[0] is a place in the store */
    uint32_t ids[3];
};

struct long_entry {
    uint64_t hash; /* 0 in a free entry */
    uint32_t length, bytes; /* and where they are */
    uint32_t count, ids;
};

struct cache {
    struct short_line *lines;
    unsigned line_bits;
    size_t short_entries;

    struct medium_entry *medium;

    struct long_entry *longs;
    uint8_t *long_bytes;
    uint32_t *long_ids;
    size_t long_entries, long_bytes_used, long_ids_used;

    uint32_t *store; /* for the first two tables: records of a count and that many ids */
    size_t store_used, store_size;

    uint64_t lookups, misses;
    uint32_t times_emptied;
};

/* -- Look-up --------------------------------------------------------------------------------- */

/* Whether a pre-token belongs into the first table: without its zeros it could be mistaken for
 * another there, or for a free entry. */
static inline bool is_short(struct key key, const uint8_t *bytes, size_t length)
{
    return length <= SHORT_BYTES && bytes[length - 1] && key.low;
}

static inline struct short_line *short_line_of(const struct cache *cache, struct key key)
{
    return &cache->lines[hash_key(key) >> (64 - cache->line_bits)];
}

/* The word with the ids of the entry that has a key; 0 if there is none.  It has
 * no branches, and no load that waits for the comparison: which of the four entries it is can't be
 * predicted.  Each key is there once, so the ids of two entries are never mixed. */
static inline uint64_t find_in_line(const struct short_line *line, struct key key)
{
    uint64_t found = 0;
    for (unsigned i = 0; i < ENTRIES_PER_LINE; i++) {
        uint64_t high = line->entries[i].high;
        uint64_t differs = (line->entries[i].low ^ key.low) |
                           ((high ^ key.high) << (64 - HIGH_KEY_BITS));
        found |= differs ? 0 : high; /* compiled to a conditional move */
    }
    return found;
}

/* Two adjacent entries may contain a medium pre-token; the first is the newer one. */
static inline struct medium_entry *medium_place(const struct cache *cache, struct key key)
{
    return &cache->medium[hash_key(key) >> (64 - MEDIUM_BITS) & ~(uint64_t)1];
}

/* The i-th entry that may contain a long pre-token. */
static inline struct long_entry *long_place(const struct cache *cache, uint64_t hash, size_t i)
{
    return &cache->longs[((hash >> 32) + i) & ((1 << LONG_TABLE_BITS) - 1)];
}

static inline const uint32_t *stored_at(const struct cache *cache, uint32_t place)
{
    return cache->store + (size_t)place * STORE_UNIT;
}

/* Copy the ids of a record of the store; returns their number. */
static inline size_t load_stored(const struct cache *cache, uint32_t place, uint32_t *ids)
{
    const uint32_t *record = stored_at(cache, place);
    memcpy(ids, record + 1, record[0] * sizeof *ids);
    return record[0];
}

/* -- The rest, in cache.c -------------------------------------------------------------------- */

int cache_open(struct cache *cache); /* 0, or -1 if memory is short; close it in either case */
void cache_clear(struct cache *cache);
void cache_close(struct cache *cache);

/* The key of a pre-token in the last table is its hash_long, and 0.
 *
 * Look up a pre-token.  Writes its ids, for which there must be room for as many
 * as it has bytes, and at least 3; returns their number, or 0 if it is not cached. */
size_t cache_find(struct cache *cache, struct key key, const uint8_t *bytes, size_t length,
                  uint32_t *ids);

/* Keep the ids of a pre-token, of any length. */
void cache_keep(struct cache *cache, struct key key, const uint8_t *bytes, size_t length,
                const uint32_t *ids, size_t count);

#endif
