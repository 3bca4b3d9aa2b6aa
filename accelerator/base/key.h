/* Short strings of bytes as two numbers, to compare and hash them in one step. */

#ifndef BPE_BASE_KEY_H
#define BPE_BASE_KEY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { KEY_BYTES = 15 }; /* the longest that has a key */

/* The 8 bytes at p, the first lowest. */
static inline uint64_t load_64(const uint8_t *p)
{
    uint64_t value;
    memcpy(&value, p, sizeof value);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

/* Write 4 bytes, the lowest first. */
static inline void store_32(uint8_t *p, uint32_t value)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    memcpy(p, &value, sizeof value);
}

struct key {
    uint64_t low, high;
};

/* Masks that keep the first n bytes of 16. */
extern const uint64_t key_masks[KEY_BYTES + 1][2];

/* The key of a pre-token of 1 to 15 bytes, padded with zeros.  Reads 16 bytes at p.  Where
 * it must differ from one that ends in zeros, its length goes into the highest byte. */
static inline struct key make_key(const uint8_t *p, size_t length)
{
    return (struct key){load_64(p) & key_masks[length][0], load_64(p + 8) & key_masks[length][1]};
}

static inline uint64_t hash_key(struct key key)
{
    uint64_t hash = (key.low ^ (key.high << 32 | key.high >> 32)) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (key.high * UINT64_C(0xC2B2AE3D27D4EB4F));
}

/* The same, for bytes after which nothing may be read. */
static inline struct key make_key_safely(const uint8_t *p, size_t length)
{
    uint8_t copy[16] = {0};
    memcpy(copy, p, length);
    return make_key(copy, length);
}

static inline struct key with_length(struct key key, size_t length)
{
    key.high |= (uint64_t)length << 56;
    return key;
}

/* A hash of a string too long for a key; never 0. */
static inline uint64_t hash_long(const uint8_t *bytes, size_t length)
{
    uint64_t hash = length;
    for (; length >= 8; bytes += 8, length -= 8) {
        hash = (hash ^ load_64(bytes)) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    uint8_t rest[8] = {0};
    memcpy(rest, bytes, length);
    hash = (hash ^ load_64(rest)) * UINT64_C(0x9E3779B97F4A7C15);
    return (hash ^ hash >> 32) | 1;
}

#endif
