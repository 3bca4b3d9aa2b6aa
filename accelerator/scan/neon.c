/* The scanners for 64-bit Arm processors, all of which have NEON. */

#include "scan/scan.h"

#if defined(BPE_WITH_NEON)

#include <arm_neon.h>

#include "scan/blocks_template.h"

/* A bit for each byte of four vectors, which are all ones or all zeros.  NEON has no instruction
 * for it: each byte keeps the bit of its place among eight, and adding neighbors, three times,
 * brings eight of them together. */
ALWAYS_INLINE uint64_t to_bits(const uint8x16_t v[4])
{
    const uint8x16_t places = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t low = vpaddq_u8(vandq_u8(v[0], places), vandq_u8(v[1], places));
    uint8x16_t high = vpaddq_u8(vandq_u8(v[2], places), vandq_u8(v[3], places));
    uint8x16_t sums = vpaddq_u8(low, high);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)), 0);
}

ALWAYS_INLINE uint64_t in_range(const uint8x16_t bytes[4], uint8_t first, uint8_t last)
{
    uint8x16_t found[4];
    for (int i = 0; i < 4; i++)
        found[i] = vcleq_u8(vsubq_u8(bytes[i], vdupq_n_u8(first)), vdupq_n_u8(last - first));
    return to_bits(found);
}

ALWAYS_INLINE uint64_t equal(const uint8x16_t bytes[4], uint8_t byte)
{
    return in_range(bytes, byte, byte);
}

static inline void classify_ascii(const uint8_t *p, struct block *block)
{
    const uint8x16_t bytes[4] = {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32),
                                 vld1q_u8(p + 48)};
    block->upper = in_range(bytes, 'A', 'Z');
    block->lower = in_range(bytes, 'a', 'z');
    block->caseless = 0;
    block->number = in_range(bytes, '0', '9');
    block->newline = equal(bytes, '\n') | equal(bytes, '\r');
    block->space = equal(bytes, ' ');
    block->blank = (in_range(bytes, '\t', '\r') & ~block->newline) | block->space;
    block->apostrophe = equal(bytes, '\'');
    block->slash = equal(bytes, '/');
    block->high = in_range(bytes, 0x80, 0xFF);
    block->control = in_range(bytes, 0, 0x1F) | equal(bytes, 0x7F);
}

SPLIT_PATTERNS(BLOCK_SCANNER)

#define AS_ENTRY(id, name, ...) scan_##id,
scanner *const neon_scanners[PATTERN_COUNT] = {SPLIT_PATTERNS(AS_ENTRY)};

#endif
