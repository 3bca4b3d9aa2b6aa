/* The scanners for x86 processors with AVX2 and BMI, chosen at run time. */

#include "base/processor.h"

#if defined(BPE_WITH_AVX2)

#include "base/avx2.h"

AVX2_BEGIN

#include "scan/blocks_template.h"

/* A bit for each byte of two vectors, of which the highest bit tells. */
ALWAYS_INLINE uint64_t to_bits(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) |
           (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

/* The bytes from `first` to `last`, both below 0x80; comparing is signed, so none above is. */
ALWAYS_INLINE __m256i in_range(__m256i bytes, char first, char last)
{
    return _mm256_andnot_si256(_mm256_cmpgt_epi8(bytes, _mm256_set1_epi8(last)),
                               _mm256_cmpgt_epi8(bytes, _mm256_set1_epi8((char)(first - 1))));
}

ALWAYS_INLINE uint64_t equal(__m256i low, __m256i high, char byte)
{
    const __m256i wanted = _mm256_set1_epi8(byte);
    return to_bits(_mm256_cmpeq_epi8(low, wanted), _mm256_cmpeq_epi8(high, wanted));
}

static inline void classify_ascii(const uint8_t *p, struct block *block)
{
    const __m256i low = _mm256_loadu_si256((const __m256i *)p);
    const __m256i high = _mm256_loadu_si256((const __m256i *)(p + 32));
    const __m256i case_bit = _mm256_set1_epi8(0x20);
    uint64_t letter = to_bits(in_range(_mm256_or_si256(low, case_bit), 'a', 'z'),
                              in_range(_mm256_or_si256(high, case_bit), 'a', 'z'));
    uint64_t is_lower = to_bits(_mm256_slli_epi16(low, 2), _mm256_slli_epi16(high, 2));
    uint64_t control = to_bits(in_range(low, '\t', '\r'), in_range(high, '\t', '\r'));
    block->lower = letter & is_lower;
    block->upper = letter & ~is_lower;
    block->caseless = 0;
    block->number = to_bits(in_range(low, '0', '9'), in_range(high, '0', '9'));
    block->newline = equal(low, high, '\n') | equal(low, high, '\r');
    block->space = equal(low, high, ' ');
    block->blank = (control & ~block->newline) | block->space;
    block->apostrophe = equal(low, high, '\'');
    block->slash = equal(low, high, '/');
    block->high = to_bits(low, high);
    block->control = to_bits(in_range(low, 0, 0x1F), in_range(high, 0, 0x1F)) |
                     equal(low, high, 0x7F);
}

SPLIT_PATTERNS(BLOCK_SCANNER)

#define AS_ENTRY(id, name, ...) scan_##id,
scanner *const avx2_scanners[PATTERN_COUNT] = {SPLIT_PATTERNS(AS_ENTRY)};

AVX2_END

#else

typedef int not_for_this_processor; /* a file must declare something */

#endif
