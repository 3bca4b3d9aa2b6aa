/* Merging up to 64 parts for x86 processors with AVX2 and BMI, chosen at run time.
 *
 * The keys stay in registers, where the smallest is found, and some are replaced, a vector at a
 * time. */

#include "base/processor.h"

#if defined(BPE_WITH_AVX2)

#include "base/avx2.h"

AVX2_BEGIN

#include "encode/merge.h"
#include "encode/merge_short.h"

enum { IN_VECTOR = 8 };

struct keys {
    __m256i vectors[HOLES_UP_TO / IN_VECTOR];
};

#define AS_CONSTANTS static inline __attribute__((always_inline)) PLAIN_LOOPS

#include "encode/merge_template.h"

AS_CONSTANTS void load_keys(struct keys *keys, int32_t *first, const unsigned room)
{
    for (unsigned i = 0; i < room; i += IN_VECTOR)
        keys->vectors[i / IN_VECTOR] = _mm256_loadu_si256((const __m256i *)(first + i));
}

AS_CONSTANTS int32_t smallest_key(const struct keys *keys, const unsigned room)
{
    __m256i eight = keys->vectors[0];
    for (unsigned i = 1; i < room / IN_VECTOR; i++)
        eight = _mm256_min_epi32(eight, keys->vectors[i]);
    __m128i four = _mm_min_epi32(_mm256_castsi256_si128(eight),
                                 _mm256_extracti128_si256(eight, 1));
    four = _mm_min_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_min_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return _mm_cvtsi128_si32(four);
}

AS_CONSTANTS void replace_key(struct keys *keys, const unsigned room, unsigned place, int32_t key)
{
    __m256i from_place = _mm256_sub_epi32(_mm256_set1_epi32((int)place),
                                          _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    for (unsigned i = 0; i < room / IN_VECTOR; i++) {
        __m256i is_it = _mm256_cmpeq_epi32(from_place, _mm256_set1_epi32((int)(IN_VECTOR * i)));
        keys->vectors[i] = _mm256_blendv_epi8(keys->vectors[i], _mm256_set1_epi32(key), is_it);
    }
}

PLAIN_LOOPS
size_t merge_with_holes_avx2(const struct vocabulary *v, const uint8_t *bytes, unsigned n,
                             uint32_t *ids)
{
    return n <= 32 ? merge_with_keys(v, bytes, n, ids, 32) : merge_with_keys(v, bytes, n, ids, 64);
}

AVX2_END

#else

typedef int not_for_this_processor; /* a file must declare something */

#endif
