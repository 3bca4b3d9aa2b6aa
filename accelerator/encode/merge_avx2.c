/* Merging up to 64 parts for x86 processors with AVX2 and BMI, chosen at run time.
 *
 * The same as merge_with_holes, but that the keys stay in registers, where the smallest is found,
 * and some are replaced, a vector at a time. */

#include "base/processor.h"

#if defined(BPE_WITH_AVX2)

#include <immintrin.h>

AVX2_BEGIN

#include "encode/merge.h"
#include "encode/merge_short.h"

#define AS_CONSTANTS static inline __attribute__((always_inline)) PLAIN_LOOPS

/* In place of a part where there is none; it is no id. */
#define NO_PART ((1u << ID_BITS) - 1)

enum { IN_VECTOR = 8 };

AS_CONSTANTS int32_t smallest_of(const __m256i *keys, const unsigned vectors)
{
    __m256i eight = keys[0];
    for (unsigned i = 1; i < vectors; i++)
        eight = _mm256_min_epi32(eight, keys[i]);
    __m128i four = _mm_min_epi32(_mm256_castsi256_si128(eight),
                                 _mm256_extracti128_si256(eight, 1));
    four = _mm_min_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_min_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return _mm_cvtsi128_si32(four);
}

/* Replace the key at a place; nothing if that is beyond all of them. */
AS_CONSTANTS void replace_key(__m256i *keys, const unsigned vectors, unsigned place, int32_t key)
{
    __m256i from_place = _mm256_sub_epi32(_mm256_set1_epi32((int)place),
                                          _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    for (unsigned i = 0; i < vectors; i++) {
        __m256i is_it = _mm256_cmpeq_epi32(from_place, _mm256_set1_epi32((int)(IN_VECTOR * i)));
        keys[i] = _mm256_blendv_epi8(keys[i], _mm256_set1_epi32(key), is_it);
    }
}

AS_CONSTANTS size_t merge_in_vectors(const struct vocabulary *v, const uint8_t *bytes, unsigned n,
                                     uint32_t *ids, const unsigned vectors)
{
    uint32_t part[HOLES_UP_TO + 1];
    int32_t first_keys[HOLES_UP_TO];
    __m256i keys[HOLES_UP_TO / IN_VECTOR];
    uint64_t alive = n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0;
    for (unsigned i = 0; i < n; i++)
        part[i] = v->byte_ids[bytes[i]];
    part[HOLES_UP_TO] = NO_PART;
    for (unsigned i = 0; i < IN_VECTOR * vectors; i++)
        first_keys[i] = NO_PAIR;
    for (unsigned i = 0; i + 1 < n; i++)
        first_keys[i] = ranked_place(v->byte_pair_ranks[bytes[i] << 8 | bytes[i + 1]], i);
    for (unsigned i = 0; i < vectors; i++)
        keys[i] = _mm256_loadu_si256((const __m256i *)(first_keys + IN_VECTOR * i));
    for (;;) {
        int32_t least = smallest_of(keys, vectors);
        uint32_t rank = (uint32_t)least >> 6;
        if (rank >= NO_RANK)
            break;
        unsigned at = (unsigned)least & 63;
        uint64_t later = alive & ~(((uint64_t)2 << at) - 1); /* never empty: the pair has a right */
        unsigned taken = (unsigned)__builtin_ctzll(later);
        alive &= ~((uint64_t)1 << taken);
        later &= later - 1;
        uint64_t earlier = alive & (((uint64_t)1 << at) - 1);
        unsigned before = earlier ? 63 - (unsigned)__builtin_clzll(earlier) : HOLES_UP_TO;
        unsigned after = later ? (unsigned)__builtin_ctzll(later) : HOLES_UP_TO;
        uint32_t rank_before, rank_after;
        part[at] = joined_id(v, rank);
        ranks_around(v, part[before], part[at], part[after], &rank_before, &rank_after);
        replace_key(keys, vectors, taken, NO_PAIR);
        replace_key(keys, vectors, at, ranked_place(rank_after, at));
        replace_key(keys, vectors, before, ranked_place(rank_before, before));
    }
    size_t count = 0;
    for (; alive; alive &= alive - 1)
        ids[count++] = part[__builtin_ctzll(alive)];
    return count;
}

PLAIN_LOOPS
size_t merge_with_holes_avx2(const struct vocabulary *v, const uint8_t *bytes, unsigned n,
                             uint32_t *ids)
{
    return n <= 32 ? merge_in_vectors(v, bytes, n, ids, 4) : merge_in_vectors(v, bytes, n, ids, 8);
}

AVX2_END

#else

typedef int not_for_this_processor; /* a file must declare something */

#endif
