/* The map from strings of bytes to numbers: everything but the look-up of short ones. */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "train/byte_map.h"
#include "base/table.h"

#if defined(__GNUC__)
#define PREFETCH(p) __builtin_prefetch(p)
#else
#define PREFETCH(p) ((void)(p))
#endif

enum {
    AHEAD = 24,   /* entries fetched ahead of their use */
    BLOCK = 32,   /* neighboring entries, added to another table together */
    FIRST_BITS = 8,
    LAST_BITS = 40, /* far more than any memory, so sizes never overflow */
};

#define SCATTER ((size_t)0x9E3779B1) /* odd */

/* How many entries a table may contain. */
static size_t limit(unsigned bits)
{
    return ((size_t)1 << bits) / 8 * 5;
}

/* How large a table must be for this many entries; 0 if that is impossible. */
static unsigned bits_for(size_t entries)
{
    unsigned bits = FIRST_BITS;
    while (bits < LAST_BITS && bits < sizeof(size_t) * 8 - 6 && limit(bits) < entries)
        bits++;
    return limit(bits) < entries ? 0 : bits;
}

/* -- Short strings --------------------------------------------------------------------------- */

/* Both tables are in the order of their hashes, so a larger one is filled from the front. */
static int grow_shorts(struct byte_map *map, size_t entries)
{
    struct byte_map old = *map;
    unsigned bits = bits_for(entries);
    struct short_item *items = bits ? table_new(sizeof *items << bits) : NULL;
    if (!items)
        return -1;
    map->shorts = items;
    map->short_bits = bits;
    map->n_short = 0;
    for (size_t i = 0; old.shorts && i < (size_t)1 << old.short_bits; i++) {
        struct short_item *item = &old.shorts[i];
        if (item->key.high)
            *byte_map_short_at(map, item->key, short_place(map, item->key)) = item->number;
    }
    table_free(old.shorts);
    return 0;
}

int byte_map_reserve_shorts(struct byte_map *map, size_t n)
{
    if (map->shorts && map->n_short + n <= limit(map->short_bits))
        return 0;
    return grow_shorts(map, map->n_short + n);
}

static uint64_t *short_at(struct byte_map *map, struct key key)
{
    if (byte_map_reserve_shorts(map, 1) < 0)
        return NULL;
    return byte_map_short_at(map, key, short_place(map, key));
}

static uint64_t get_short(const struct byte_map *map, struct key key)
{
    if (!map->shorts)
        return 0;
    const struct short_item *place = short_place(map, key);
    while (place->key.high) {
        if (place->key.low == key.low && place->key.high == key.high)
            return place->number;
        if (++place == map->shorts + ((size_t)1 << map->short_bits))
            place = map->shorts;
    }
    return 0;
}

/* -- Long strings ---------------------------------------------------------------------------- */

/* Where a long string is, or the free entry where it would be. */
static struct long_item *find_long(const struct byte_map *map, uint64_t hash, const uint8_t *bytes,
                                   size_t length)
{
    size_t mask = ((size_t)1 << map->long_bits) - 1;
    for (size_t i = hash >> (64 - map->long_bits);; i = (i + 1) & mask) {
        struct long_item *item = &map->longs[i];
        if (!item->length || (item->hash == hash && item->length == length &&
                              memcmp(map->bytes + item->at, bytes, length) == 0))
            return item;
    }
}

static int grow_longs(struct byte_map *map, size_t entries)
{
    struct byte_map old = *map;
    unsigned bits = bits_for(entries);
    struct long_item *items = bits ? table_new(sizeof *items << bits) : NULL;
    if (!items)
        return -1;
    map->longs = items;
    map->long_bits = bits;
    for (size_t i = 0; old.longs && i < (size_t)1 << old.long_bits; i++) {
        struct long_item *item = &old.longs[i];
        if (item->length)
            *find_long(map, item->hash, old.bytes + item->at, item->length) = *item;
    }
    table_free(old.longs);
    return 0;
}

static int reserve_longs(struct byte_map *map, size_t n)
{
    if (map->longs && map->n_long + n <= limit(map->long_bits))
        return 0;
    return grow_longs(map, map->n_long + n);
}

static int reserve_bytes(struct byte_map *map, size_t more)
{
    if (map->bytes_room - map->bytes_used >= more)
        return 0;
    if (more > SIZE_MAX / 4 - map->bytes_used)
        return -1;
    size_t room = map->bytes_used + more + (map->bytes_used + more) / 2;
    uint8_t *bytes = realloc(map->bytes, room);
    if (!bytes)
        return -1;
    map->bytes = bytes;
    map->bytes_room = room;
    return 0;
}

static uint64_t *long_at(struct byte_map *map, uint64_t hash, const uint8_t *bytes, size_t length)
{
    if (reserve_longs(map, 1) < 0)
        return NULL;
    struct long_item *item = find_long(map, hash, bytes, length);
    if (!item->length) {
        if (reserve_bytes(map, length) < 0)
            return NULL;
        memcpy(map->bytes + map->bytes_used, bytes, length);
        *item = (struct long_item){hash, 0, map->bytes_used, length};
        map->bytes_used += length;
        map->n_long++;
    }
    return &item->number;
}

static uint64_t get_long(const struct byte_map *map, const uint8_t *bytes, size_t length)
{
    if (!map->longs)
        return 0;
    return find_long(map, seeded_hash_long(map->seed, bytes, length), bytes, length)->number;
}

/* -- All of them ----------------------------------------------------------------------------- */

static struct key key_of(const uint8_t *bytes, size_t length)
{
    return with_length(make_key_safely(bytes, length), length);
}

uint64_t *byte_map_at(struct byte_map *map, const uint8_t *bytes, size_t length)
{
    return length <= KEY_BYTES
               ? short_at(map, key_of(bytes, length))
               : long_at(map, seeded_hash_long(map->seed, bytes, length), bytes, length);
}

uint64_t byte_map_get(const struct byte_map *map, const uint8_t *bytes, size_t length)
{
    return length <= KEY_BYTES ? get_short(map, key_of(bytes, length))
                               : get_long(map, bytes, length);
}

/* The entries of a table of 2 to the power of `bits`, block by block in an order that is scattered
 * over the table.  Both tables are in the order of their hashes: in that order, a table would be
 * filled from the front, and every search there would walk past all entries. */
static inline size_t scattered(size_t i, unsigned bits)
{
    const size_t last_block = ((size_t)1 << bits) / BLOCK - 1;
    return (i / BLOCK * SCATTER & last_block) * BLOCK + i % BLOCK;
}

static int add_shorts(struct byte_map *map, const struct byte_map *other)
{
    for (size_t i = 0; other->shorts && i < (size_t)1 << other->short_bits; i++) {
        const struct short_item *item = &other->shorts[scattered(i, other->short_bits)];
        uint64_t *number = item->key.high ? short_at(map, item->key) : NULL;
        if (number)
            *number += item->number;
        else if (item->key.high)
            return -1;
    }
    return 0;
}

/* Fetch the bytes that adding an item compares.  The tables are in the same order, so only bytes are
 * far from what was just used. */
static inline void fetch_long(const struct byte_map *map, const struct byte_map *other,
                              const struct long_item *item)
{
    const struct long_item *place = &map->longs[item->hash >> (64 - map->long_bits)];
    if (!item->length)
        return;
    PREFETCH(other->bytes + item->at);
    if (place->hash == item->hash)
        PREFETCH(map->bytes + place->at);
}

static int add_longs(struct byte_map *map, const struct byte_map *other)
{
    const size_t n = other->longs ? (size_t)1 << other->long_bits : 0;
    const bool alike = map->longs && map->seed == other->seed;
    for (size_t i = 0; i < n; i++) {
        const struct long_item *item = &other->longs[scattered(i, other->long_bits)];
        if (alike && i + AHEAD < n)
            fetch_long(map, other, &other->longs[scattered(i + AHEAD, other->long_bits)]);
        if (!item->length)
            continue;
        const uint8_t *bytes = other->bytes + item->at;
        uint64_t hash = alike ? item->hash : seeded_hash_long(map->seed, bytes, item->length);
        uint64_t *number = long_at(map, hash, bytes, item->length);
        if (!number)
            return -1;
        *number += item->number;
    }
    return 0;
}

int byte_map_add(struct byte_map *map, const struct byte_map *other)
{
    return add_shorts(map, other) < 0 ? -1 : add_longs(map, other);
}

void byte_map_drop_shorts(struct byte_map *map)
{
    table_free(map->shorts);
    map->shorts = NULL;
    map->n_short = 0;
}

void byte_map_drop_longs(struct byte_map *map)
{
    table_free(map->longs);
    free(map->bytes);
    map->longs = NULL;
    map->bytes = NULL;
    map->n_long = map->bytes_used = map->bytes_room = 0;
}

void byte_map_open(struct byte_map *map, uint64_t seed)
{
    memset(map, 0, sizeof *map);
    map->seed = seed;
}

void byte_map_close(struct byte_map *map)
{
    byte_map_drop_shorts(map);
    byte_map_drop_longs(map);
}
