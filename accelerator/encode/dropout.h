/* Merging with dropout: each time a merge is next, it is skipped with some probability. */

#ifndef BPE_ENCODE_DROPOUT_H
#define BPE_ENCODE_DROPOUT_H

#include "encode/encode.h"

/* The random generator, and memory that the next pre-token uses again. */
struct dropout {
    uint64_t limit; /* of 2^53: how likely a merge is skipped */
    uint64_t state; /* of the generator, SplitMix64 */
    void *block;
    size_t size;
};

void dropout_release(struct dropout *dropout);

/* Append the ids of a text, or of `count` pre-tokens that end at worker->ends, the first of which
 * begins at text[0].  They use no cache.  Both return 0, or -1 if memory is short. */
int encode_text_dropping(const struct vocabulary *vocabulary, struct worker *worker,
                         struct cutter cutter, struct dropout *dropout, const uint8_t *text,
                         size_t size);
int encode_pieces_dropping(const struct vocabulary *vocabulary, struct worker *worker,
                           struct dropout *dropout, const uint8_t *text, size_t start,
                           size_t count);

#endif
