/* Merging up to 64 parts: the common part of all ways.
 *
 * Parts stay where they are; bit i of `alive` is set while part i still begins there.  A rank is
 * kept with its place below it, so that the smallest number is what is looked for. */

#ifndef BPE_ENCODE_MERGE_SHORT_H
#define BPE_ENCODE_MERGE_SHORT_H

#include "encode/vocabulary.h"

enum { HOLES_UP_TO = 64 };

/* Loops of a few rounds over what was just written lose by vector instructions, which cannot read
 * it before it has left the store buffer; by being unrolled, as nobody can predict where they end;
 * and by becoming calls of memmove. */
#if defined(__GNUC__) && !defined(__clang__)
#define PLAIN_LOOPS                                                                                \
    __attribute__((optimize("no-tree-vectorize", "no-unroll-loops", "no-peel-loops",               \
                            "no-tree-loop-distribute-patterns")))
#else
#define PLAIN_LOOPS
#endif

#define NO_PAIR INT32_MAX

static inline int32_t ranked_place(uint32_t rank, unsigned place)
{
    return (int32_t)(rank << 6 | place);
}

/* Compiled for processors that have it; see vocabulary->use_avx2. */
size_t merge_with_holes_avx2(const struct vocabulary *vocabulary, const uint8_t *bytes, unsigned n,
                             uint32_t *ids);

#endif
