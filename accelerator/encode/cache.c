/* The cache of pre-tokens: everything except looking up short ones. */

#include <stdlib.h>

#include "encode/cache.h"
#include "base/table.h"

enum {
    STORE_ROOM = 1 << 22,  /* ids: 16 MB at most */
    LONG_PROBES = 8,       /* entries that a long pre-token may be in */
    LONG_STORE = 1 << 22,  /* bytes, and ids */
};

const uint64_t key_masks[KEY_BYTES + 1][2] = {
    {0x0000000000000000, 0x0000000000000000},
    {0x00000000000000ff, 0x0000000000000000},
    {0x000000000000ffff, 0x0000000000000000},
    {0x0000000000ffffff, 0x0000000000000000},
    {0x00000000ffffffff, 0x0000000000000000},
    {0x000000ffffffffff, 0x0000000000000000},
    {0x0000ffffffffffff, 0x0000000000000000},
    {0x00ffffffffffffff, 0x0000000000000000},
    {0xffffffffffffffff, 0x0000000000000000},
    {0xffffffffffffffff, 0x00000000000000ff},
    {0xffffffffffffffff, 0x000000000000ffff},
    {0xffffffffffffffff, 0x0000000000ffffff},
    {0xffffffffffffffff, 0x00000000ffffffff},
    {0xffffffffffffffff, 0x000000ffffffffff},
    {0xffffffffffffffff, 0x0000ffffffffffff},
    {0xffffffffffffffff, 0x00ffffffffffffff},
};

/* -- The store of ids ------------------------------------------------------------------------ */

/* Store a record of ids.  Returns its place, or NO_ID if there is no room. */
static uint32_t store_ids(struct cache *cache, const uint32_t *ids, size_t count)
{
    size_t size = (1 + count + STORE_UNIT - 1) / STORE_UNIT * STORE_UNIT;
    if (cache->store_used + size > cache->store_size) {
        size_t larger = cache->store_size ? 2 * cache->store_size : 1 << 16;
        if (larger > STORE_ROOM)
            return NO_ID;
        uint32_t *store = realloc(cache->store, larger * sizeof *store);
        if (!store)
            return NO_ID;
        cache->store = store;
        cache->store_size = larger;
    }
    uint32_t *record = cache->store + cache->store_used;
    record[0] = (uint32_t)count;
    memcpy(record + 1, ids, count * sizeof *ids);
    uint32_t place = (uint32_t)(cache->store_used / STORE_UNIT);
    cache->store_used += size;
    return place;
}

/* -- Short pre-tokens ------------------------------------------------------------------------ */

static size_t lines_in(unsigned line_bits)
{
    return (size_t)1 << line_bits;
}

static int allocate_lines(struct cache *cache, unsigned line_bits)
{
    struct short_line *lines = table_new(lines_in(line_bits) * sizeof *lines);
    if (!lines)
        return -1;
    cache->lines = lines;
    cache->line_bits = line_bits;
    cache->short_entries = 0;
    return 0;
}

static void insert_entry(struct cache *cache, uint64_t hash, struct short_entry entry)
{
    struct short_entry *entries = cache->lines[hash >> (64 - cache->line_bits)].entries;
    cache->short_entries += entries[ENTRIES_PER_LINE - 1].low == 0;
    memmove(entries + 1, entries, (ENTRIES_PER_LINE - 1) * sizeof *entries);
    entries[0] = entry;
}

/* Grow the table fourfold, keeping its content.  If out of memory, it stays as it is. */
static void grow_lines(struct cache *cache)
{
    struct cache old = *cache;
    if (allocate_lines(cache, old.line_bits + 2 < LAST_LINE_BITS ? old.line_bits + 2
                                                                 : LAST_LINE_BITS) < 0)
        return;
    for (size_t line = 0; line < lines_in(old.line_bits); line++)
        for (unsigned i = ENTRIES_PER_LINE; i-- > 0;) { /* the oldest first */
            struct short_entry entry = old.lines[line].entries[i];
            uint64_t high = entry.high & ((1u << HIGH_KEY_BITS) - 1);
            if (entry.low)
                insert_entry(cache, hash_key((struct key){entry.low, high}), entry);
        }
    table_free(old.lines);
}

static size_t find_short(const struct cache *cache, struct key key, uint32_t *ids)
{
    uint64_t word = find_in_line(short_line_of(cache, key), key) >> HIGH_KEY_BITS;
    uint32_t first = word & NO_ID, second = (uint32_t)(word >> ID_BITS);
    if (!word)
        return 0;
    if (second == STORED_IDS)
        return load_stored(cache, first, ids);
    ids[0] = first;
    ids[1] = second;
    return second == NO_ID ? 1 : 2;
}

/* INVARIANT: a key is looked up before it is stored, so each key is there once. */
static void keep_short(struct cache *cache, struct key key, const uint32_t *ids, size_t count)
{
    uint64_t first = ids[0], second = count == 2 ? ids[1] : NO_ID;
    if (count > 2 || !(first | second)) { /* two that are 0 would look like none */
        first = store_ids(cache, ids, count);
        if (first == NO_ID) {
            cache_clear(cache);
            return;
        }
        second = STORED_IDS;
    }
    uint64_t high = key.high | first << HIGH_KEY_BITS | second << (HIGH_KEY_BITS + ID_BITS);
    insert_entry(cache, hash_key(key), (struct short_entry){key.low, high});
    if (cache->short_entries > lines_in(cache->line_bits) * ENTRIES_PER_LINE / 2 &&
        cache->line_bits < LAST_LINE_BITS)
        grow_lines(cache);
}

/* -- Medium pre-tokens ----------------------------------------------------------------------- */

static size_t find_medium(const struct cache *cache, struct key key, uint32_t *ids)
{
    const struct medium_entry *entry = medium_place(cache, key);
    for (unsigned i = 0; i < 2; i++, entry++) {
        if (entry->low != key.low || entry->high != key.high || !entry->count)
            continue;
        if (entry->count > 3)
            return load_stored(cache, entry->ids[0], ids);
        memcpy(ids, entry->ids, sizeof entry->ids);
        return entry->count;
    }
    return 0;
}

static void keep_medium(struct cache *cache, struct key key, const uint32_t *ids, size_t count)
{
    struct medium_entry entry = {key.low, key.high, (uint32_t)count, {0}};
    if (count <= 3) {
        memcpy(entry.ids, ids, count * sizeof *ids);
    } else if ((entry.ids[0] = store_ids(cache, ids, count)) == NO_ID) {
        cache_clear(cache);
        return;
    }
    struct medium_entry *place = medium_place(cache, key);
    place[1] = place[0];
    place[0] = entry;
}

/* -- Long pre-tokens ------------------------------------------------------------------------- */

static size_t find_long(const struct cache *cache, uint64_t hash, const uint8_t *bytes,
                        size_t length, uint32_t *ids)
{
    for (size_t i = 0; i < LONG_PROBES; i++) {
        const struct long_entry *entry = long_place(cache, hash, i);
        if (!entry->hash)
            break;
        if (entry->hash == hash && entry->length == length &&
            memcmp(cache->long_bytes + entry->bytes, bytes, length) == 0) {
            memcpy(ids, cache->long_ids + entry->ids, entry->count * sizeof *ids);
            return entry->count;
        }
    }
    return 0;
}

static void clear_long(struct cache *cache)
{
    memset(cache->longs, 0, sizeof *cache->longs << LONG_TABLE_BITS);
    cache->long_entries = cache->long_bytes_used = cache->long_ids_used = 0;
}

static void keep_long(struct cache *cache, uint64_t hash, const uint8_t *bytes, size_t length,
                      const uint32_t *ids, size_t count)
{
    if (cache->long_entries >= (1 << LONG_TABLE_BITS) / 2 ||
        cache->long_bytes_used + length > LONG_STORE || cache->long_ids_used + count > LONG_STORE)
        clear_long(cache);
    for (size_t i = 0; i < LONG_PROBES; i++) {
        struct long_entry *entry = long_place(cache, hash, i);
        if (entry->hash)
            continue;
        *entry = (struct long_entry){hash, (uint32_t)length, (uint32_t)cache->long_bytes_used,
                                     (uint32_t)count, (uint32_t)cache->long_ids_used};
        memcpy(cache->long_bytes + cache->long_bytes_used, bytes, length);
        memcpy(cache->long_ids + cache->long_ids_used, ids, count * sizeof *ids);
        cache->long_bytes_used += length;
        cache->long_ids_used += count;
        cache->long_entries++;
        return;
    }
}

/* -- All of them ----------------------------------------------------------------------------- */

size_t cache_find(struct cache *cache, struct key key, const uint8_t *bytes, size_t length,
                  uint32_t *ids)
{
    if (is_short(key, bytes, length))
        return find_short(cache, key, ids);
    if (length <= KEY_BYTES)
        return find_medium(cache, key, ids);
    return length <= LONG_BYTES ? find_long(cache, key.low, bytes, length, ids) : 0;
}

void cache_keep(struct cache *cache, struct key key, const uint8_t *bytes, size_t length,
                const uint32_t *ids, size_t count)
{
    if (is_short(key, bytes, length))
        keep_short(cache, key, ids, count);
    else if (length <= KEY_BYTES)
        keep_medium(cache, key, ids, count);
    else if (length <= LONG_BYTES)
        keep_long(cache, key.low, bytes, length, ids, count);
}

int cache_open(struct cache *cache)
{
    memset(cache, 0, sizeof *cache);
    cache->medium = table_new(sizeof *cache->medium << MEDIUM_BITS);
    cache->longs = calloc((size_t)1 << LONG_TABLE_BITS, sizeof *cache->longs);
    cache->long_bytes = malloc(LONG_STORE);
    cache->long_ids = malloc(LONG_STORE * sizeof *cache->long_ids);
    if (!cache->medium || !cache->longs || !cache->long_bytes || !cache->long_ids)
        return -1;
    return allocate_lines(cache, FIRST_LINE_BITS);
}

void cache_clear(struct cache *cache)
{
    memset(cache->lines, 0, sizeof *cache->lines << cache->line_bits);
    memset(cache->medium, 0, sizeof *cache->medium << MEDIUM_BITS);
    clear_long(cache);
    cache->short_entries = cache->store_used = 0;
    cache->times_emptied++;
}

void cache_close(struct cache *cache)
{
    table_free(cache->lines);
    table_free(cache->medium);
    free(cache->longs);
    free(cache->long_bytes);
    free(cache->long_ids);
    free(cache->store);
    memset(cache, 0, sizeof *cache);
}
