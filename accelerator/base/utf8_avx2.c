/* Characters as UTF-8 for x86 processors with AVX2 and BMI, chosen at run time. */

#include "base/processor.h"

#if defined(BPE_WITH_AVX2)

#include "base/avx2.h"

#include "base/utf8.h"

/* Four characters of 1 to 3 bytes are in 4 bytes each.  A row of the table moves the bytes that
 * count side by side.  Its number has a bit for each character from U+0080, and 16 times as high
 * one for each from U+0800. */
#define BYTES_00(at) at,
#define BYTES_01(at) at, at + 1,
#define BYTES_10(at) at, /* invalid */
#define BYTES_11(at) at, at + 1, at + 2,
#define ROW(a, b, c, d, e, f, g, h)                                                                \
    {BYTES_##d##h(0) BYTES_##c##g(4) BYTES_##b##f(8) BYTES_##a##e(12)},
#define ROWS_2(a, b, c, d, e, f)                                                                   \
    ROW(a, b, c, d, e, f, 0, 0) ROW(a, b, c, d, e, f, 0, 1)                                        \
    ROW(a, b, c, d, e, f, 1, 0) ROW(a, b, c, d, e, f, 1, 1)
#define ROWS_4(a, b, c, d)                                                                         \
    ROWS_2(a, b, c, d, 0, 0) ROWS_2(a, b, c, d, 0, 1)                                              \
    ROWS_2(a, b, c, d, 1, 0) ROWS_2(a, b, c, d, 1, 1)
#define ROWS_6(a, b)                                                                               \
    ROWS_4(a, b, 0, 0) ROWS_4(a, b, 0, 1) ROWS_4(a, b, 1, 0) ROWS_4(a, b, 1, 1)

static const uint8_t rows[256][16] = {ROWS_6(0, 0) ROWS_6(0, 1) ROWS_6(1, 0) ROWS_6(1, 1)};

AVX2_BEGIN

/* Write four characters; returns the end. */
static inline uint8_t *write_four(__m128i bytes, unsigned from_80, unsigned from_800, uint8_t *out)
{
    __m128i row = _mm_loadu_si128((const __m128i *)rows[from_80 | from_800 << 4]);
    _mm_storeu_si128((__m128i *)out, _mm_shuffle_epi8(bytes, row)); /* 4 bytes more, at least */
    return out + 4 + __builtin_popcount(from_80) + __builtin_popcount(from_800);
}

/* Write eight characters below U+10000; returns the end. */
static inline uint8_t *write_eight(__m256i c, uint8_t *out)
{
    const __m256i low_6 = _mm256_set1_epi32(0x3F), follows = _mm256_set1_epi32(0x80);
    __m256i last = _mm256_or_si256(_mm256_and_si256(c, low_6), follows);
    __m256i shifted = _mm256_srli_epi32(c, 6);
    __m256i middle = _mm256_or_si256(_mm256_and_si256(shifted, low_6), follows);
    __m256i two = _mm256_or_si256(_mm256_or_si256(shifted, _mm256_set1_epi32(0xC0)),
                                  _mm256_slli_epi32(last, 8));
    __m256i three = _mm256_or_si256(_mm256_srli_epi32(c, 12), _mm256_set1_epi32(0xE0));
    three = _mm256_or_si256(three, _mm256_slli_epi32(middle, 8));
    three = _mm256_or_si256(three, _mm256_slli_epi32(last, 16));
    __m256i is_two = _mm256_cmpgt_epi32(c, _mm256_set1_epi32(0x7F));
    __m256i is_three = _mm256_cmpgt_epi32(c, _mm256_set1_epi32(0x7FF));
    __m256i bytes = _mm256_blendv_epi8(_mm256_blendv_epi8(c, two, is_two), three, is_three);
    unsigned from_80 = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(is_two));
    unsigned from_800 = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(is_three));
    out = write_four(_mm256_castsi256_si128(bytes), from_80 & 15, from_800 & 15, out);
    return write_four(_mm256_extracti128_si256(bytes, 1), from_80 >> 4, from_800 >> 4, out);
}

size_t write_ucs2_avx2(const uint16_t *text, size_t length, uint8_t **out, bool *surrogate)
{
    uint8_t *to = *out;
    size_t i = 0;
    __m128i any = _mm_setzero_si128();
    for (; length - i >= 8; i += 8) {
        __m128i eight = _mm_loadu_si128((const __m128i *)(text + i));
        if (_mm_testz_si128(eight, _mm_set1_epi16((short)0xFF80))) {
            _mm_storel_epi64((__m128i *)to, _mm_packus_epi16(eight, eight));
            to += 8;
            continue;
        }
        __m128i high = _mm_and_si128(eight, _mm_set1_epi16((short)0xF800));
        any = _mm_or_si128(any, _mm_cmpeq_epi16(high, _mm_set1_epi16((short)0xD800)));
        to = write_eight(_mm256_cvtepu16_epi32(eight), to);
    }
    *surrogate |= _mm_movemask_epi8(any) != 0;
    *out = to;
    return i;
}

size_t write_ucs4_avx2(const uint32_t *text, size_t length, uint8_t **out, bool *surrogate)
{
    uint8_t *to = *out;
    size_t i = 0;
    __m256i any = _mm256_setzero_si256();
    for (; length - i >= 8; i += 8) {
        __m256i eight = _mm256_loadu_si256((const __m256i *)(text + i));
        if (_mm256_testz_si256(eight, _mm256_set1_epi32((int)0xFFFF0000))) {
            __m256i high = _mm256_and_si256(eight, _mm256_set1_epi32(0xF800));
            any = _mm256_or_si256(any, _mm256_cmpeq_epi32(high, _mm256_set1_epi32(0xD800)));
            to = write_eight(eight, to);
            continue;
        }
        for (size_t j = i; j < i + 8; j++) {
            unsigned width;
            uint32_t bytes = utf8_bytes(text[j], 0x10FFFF, &width);
            *surrogate |= is_surrogate(text[j]);
            __builtin_memcpy(to, &bytes, sizeof bytes);
            to += width;
        }
    }
    *surrogate |= _mm256_movemask_epi8(any) != 0;
    *out = to;
    return i;
}

AVX2_END

#else

typedef int not_for_this_processor; /* a file must declare something */

#endif
