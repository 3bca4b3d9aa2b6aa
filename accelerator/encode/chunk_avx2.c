/* The loop over a chunk for x86 processors with AVX2 and BMI, chosen at run time. */

#include "base/processor.h"

#if defined(BPE_WITH_AVX2)

#include "base/avx2.h"

AVX2_BEGIN

#include "encode/chunk_template.h"

/* Two entries are compared at once.  Their low halves take no part in the result, and the high ones
 * only if both halves are those of the key. */
static inline uint64_t find_ids(const struct short_line *line, struct key key)
{
    const __m256i low_and_high = _mm256_set_epi64x((1 << HIGH_KEY_BITS) - 1, -1,
                                                   (1 << HIGH_KEY_BITS) - 1, -1);
    const __m256i wanted = _mm256_broadcastsi128_si256(
        _mm_set_epi64x((long long)key.high, (long long)key.low));
    __m256i found = _mm256_setzero_si256();
    for (unsigned i = 0; i < ENTRIES_PER_LINE; i += 2) {
        __m256i two = _mm256_load_si256((const __m256i *)&line->entries[i]);
        __m256i same = _mm256_cmpeq_epi64(_mm256_and_si256(two, low_and_high), wanted);
        same = _mm256_and_si256(same, _mm256_shuffle_epi32(same, 0x4E)); /* both halves */
        found = _mm256_or_si256(found, _mm256_and_si256(same, two));
    }
    __m128i one = _mm_or_si128(_mm256_castsi256_si128(found), _mm256_extracti128_si256(found, 1));
    return (uint64_t)_mm_extract_epi64(one, 1);
}

int encode_chunk_avx2(const struct vocabulary *v, struct worker *worker, const uint8_t *text,
                      size_t size, size_t start, size_t count)
{
    return encode_chunk(v, worker, text, size, start, count);
}

int count_chunk_avx2(const struct vocabulary *v, struct worker *worker, const uint8_t *text,
                     size_t size, size_t start, size_t count, size_t *n_ids)
{
    return count_chunk(v, worker, text, size, start, count, n_ids);
}

AVX2_END

#else

typedef int not_for_this_processor; /* a file must declare something */

#endif
