/* Hashing for tables whose keys strangers may choose: their text, their vocabularies. */

#ifndef BPE_BASE_HASH_H
#define BPE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/key.h"

#define HASH_FACTOR UINT64_C(0x9E3779B97F4A7C15)

/* The halves of a product of 128 bits, folded into one: every bit of both factors counts. */
static inline uint64_t fold_product(uint64_t a, uint64_t b)
{
#if defined(__SIZEOF_INT128__)
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t a0 = a & UINT32_MAX, a1 = a >> 32, b0 = b & UINT32_MAX, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & UINT32_MAX);
    return (a * b) ^ (a1 * b1 + (middle >> 32) + (other >> 32));
#endif
}

/* The hash of a key with a length, and of a string too long for a key.  Without knowing the seed,
 * nobody can make up strings that collide. */
static inline uint64_t seeded_hash_key(uint64_t seed, struct key key)
{
    return fold_product(key.low ^ seed, key.high ^ HASH_FACTOR);
}

static inline uint64_t seeded_hash_long(uint64_t seed, const uint8_t *bytes, size_t length)
{
    uint64_t hash = seed ^ length;
    for (; length >= 8; bytes += 8, length -= 8)
        hash = fold_product(hash ^ load_64(bytes), HASH_FACTOR);
    uint8_t rest[8] = {0};
    memcpy(rest, bytes, length);
    return fold_product(hash ^ load_64(rest), HASH_FACTOR);
}

#endif
