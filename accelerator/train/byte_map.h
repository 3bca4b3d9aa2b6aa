/* A map from strings of bytes to numbers, which grows as needed.
 *
 * Two tables with linear probing, by length:
 *
 *   up to 15 bytes   24 bytes an entry: the string itself, its length, and its number
 *   longer           32 bytes an entry: hash, number, and where the string is in a store of bytes
 *
 * Strings are compared in full, never by a hash.  A table is at most 5/8 full. */

#ifndef BPE_TRAIN_BYTE_MAP_H
#define BPE_TRAIN_BYTE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/key.h"
#include "base/hash.h"

/* The key has the length in its highest byte, so that `high` is 0 only in a free entry. */
struct short_item {
    struct key key;
    uint64_t number;
};

struct long_item {
    uint64_t hash, number;
    size_t at, length; /* no length in a free entry */
};

struct byte_map {
    uint64_t seed;

    struct short_item *shorts; /* both may be NULL, while they are empty */
    struct long_item *longs;
    unsigned short_bits, long_bits;
    size_t n_short, n_long;

    uint8_t *bytes; /* the long strings */
    size_t bytes_used, bytes_room;
};

static inline size_t byte_map_size(const struct byte_map *map)
{
    return map->n_short + map->n_long;
}

void byte_map_open(struct byte_map *map, uint64_t seed);
void byte_map_close(struct byte_map *map);

/* The number of a string of at least one byte: its place, until something else is added.  It is 0
 * if the string is new.  NULL if memory is short. */
uint64_t *byte_map_at(struct byte_map *map, const uint8_t *bytes, size_t length);

/* The number of a string, or 0 if the map doesn't contain it. */
uint64_t byte_map_get(const struct byte_map *map, const uint8_t *bytes, size_t length);

/* Add the numbers of one map to those of another.  Returns 0, or -1 if memory is short. */
int byte_map_add(struct byte_map *map, const struct byte_map *other);

/* Write the 1 to 15 bytes of a key with its length; returns the length. */
static inline size_t short_bytes(struct key key, uint8_t bytes[16])
{
    for (unsigned i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(key.low >> 8 * i);
        bytes[8 + i] = (uint8_t)(key.high >> 8 * i);
    }
    return key.high >> 56;
}

/* Free the memory of the short strings, or of the long ones. */
void byte_map_drop_shorts(struct byte_map *map);
void byte_map_drop_longs(struct byte_map *map);

/* -- Short strings, one after the other ------------------------------------------------------ */

/* Make room for n more short strings: until n are added, no entry moves.  Returns 0, or -1 if
 * memory is short. */
int byte_map_reserve_shorts(struct byte_map *map, size_t n);

static inline struct short_item *short_place(const struct byte_map *map, struct key key)
{
    return &map->shorts[seeded_hash_key(map->seed, key) >> (64 - map->short_bits)];
}

/* The number of a key with its length; there must be room for one more.  `place` is where
 * short_place says that it may be, and entries have not moved since. */
static inline uint64_t *byte_map_short_at(struct byte_map *map, struct key key,
                                          struct short_item *place)
{
    /* Some entry is free, so this ends. */
    while (place->key.low != key.low || place->key.high != key.high) {
        if (!place->key.high) {
            place->key = key;
            map->n_short++;
            break;
        }
        if (++place == map->shorts + ((size_t)1 << map->short_bits))
            place = map->shorts;
    }
    return &place->number;
}

#endif
