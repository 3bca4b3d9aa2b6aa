/* Merging one pre-token: bytes to ids. */

#ifndef BPE_ENCODE_MERGE_H
#define BPE_ENCODE_MERGE_H

#include "base/processor.h"
#include "encode/vocabulary.h"

/* Memory for long pre-tokens, kept for the next one. */
struct merge_memory {
    void *block;
    size_t size;
    /* See merge_by_ranks.  NOWHERE in all places between two calls.
     * INVARIANT: as many as the vocabulary has ranks, so the memory serves one vocabulary. */
    uint32_t *first_of_rank;
};

/* Write the ids of a pre-token of `size` bytes, at least one, to `ids`, which has room for as many
 * ids as there are bytes.  Returns how many there are, or 0 if memory is short. */
size_t merge_bytes(const struct vocabulary *vocabulary, struct merge_memory *memory,
                   const uint8_t *bytes, size_t size, uint32_t *ids);

/* Merge `n` ids, at least one, in place.  Returns how many are left, or 0 if memory is short. */
size_t merge_ids(const struct vocabulary *vocabulary, struct merge_memory *memory, uint32_t *ids,
                 size_t n);
void merge_memory_release(struct merge_memory *memory);

#endif
