/* Encoding text, and what it needs to remember: plain C, without Python. */

#ifndef BPE_ENCODE_ENCODE_H
#define BPE_ENCODE_ENCODE_H

#include <stdatomic.h>

#include "encode/cache.h"
#include "encode/merge.h"
#include "encode/superwords.h"
#include "encode/vocabulary.h"
#include "scan/scan.h"

enum {
    CHUNK = 512,               /* pre-tokens whose cache lines are fetched together */
    CHUNK_ROOM = CHUNK + SCAN_MARGIN,
    KEPT_IDS = 1 << 20,        /* room for more is freed after use */
};

/* What one thread needs to encode: a cache, and memory for results. */
struct worker {
    struct cache cache;
    struct merge_memory merging, joining; /* the second is for superwords */

    uint32_t *ids; /* the result */
    size_t n_ids, ids_room;
    atomic_bool *needless; /* encode_text stops when this is true; NULL if nothing stops it */

    uint8_t *text; /* room for a text in UTF-8 */
    size_t text_room;
    bool use_avx2; /* to write it; as of the vocabulary */

    /* The pre-tokens of a chunk: where each ends, its key, and where it may be in the cache. */
    size_t ends[CHUNK_ROOM];
    struct key keys[CHUNK_ROOM];
    uint32_t places[CHUNK_ROOM];
    uint64_t words[CHUNK_ROOM];   /* what was found there */
    uint16_t special[CHUNK_ROOM]; /* those that need more */
    uint8_t lengths[CHUNK_ROOM];
    size_t pieces[CHUNK_ROOM]; /* ends of pre-tokens, while `ends` has those of their parts */
};

struct worker *worker_new(void);
void worker_free(struct worker *worker);

/* These return 0, or -1 if memory is short.
 *
 * encode_text: append the ids of a text to worker->ids.  If not `keep`, only count them, in
 * worker->n_ids, which is 0 before.  Returns 1 if it was stopped: what is there is only a part. */
int encode_text(const struct vocabulary *vocabulary, struct worker *worker, struct cutter cutter,
                const uint8_t *text, size_t size, bool keep);

/* encode_until: append the ids of a text until worker->ids has more than `most`, or all.  What it
 * leaves out has no influence on those. */
int encode_until(const struct vocabulary *vocabulary, struct worker *worker, struct cutter cutter,
                 const uint8_t *text, size_t size, size_t most);

/* encode_pieces: append the ids of `count` pre-tokens, at most CHUNK_ROOM, that end at
 * worker->ends; the first begins at text[start]. */
int encode_pieces(const struct vocabulary *vocabulary, struct worker *worker, const uint8_t *text,
                  size_t size, size_t start, size_t count);

/* count_pieces: add the number of these ids to *n_ids instead.  worker->n_ids stays as it is. */
int count_pieces(const struct vocabulary *vocabulary, struct worker *worker, const uint8_t *text,
                 size_t size, size_t start, size_t count, size_t *n_ids);

/* encode_plain_pieces: the same as encode_pieces, each pre-token as a whole, whatever superwords there are. */
int encode_plain_pieces(const struct vocabulary *vocabulary, struct worker *worker,
                        const uint8_t *text, size_t size, size_t start, size_t count);

/* encode_in_two_stages: the same as encode_pieces, for a vocabulary with superwords. */
int encode_in_two_stages(const struct vocabulary *vocabulary, struct worker *worker,
                         const uint8_t *text, size_t size, size_t start, size_t count);

/* encode_apart: append the ids of each piece of a text, and `between` after each.  `meet` has the
 * bit first << 8 | second set at least for all bytes that are adjacent in a token. */
int encode_apart(const struct vocabulary *vocabulary, struct worker *worker, struct cutter cutter,
                 const uint8_t *text, size_t size, const uint64_t meet[MEETINGS],
                 uint32_t between);

/* What these are made of: loops, compiled twice; there is room for the ids. */
int encode_chunk_avx2(const struct vocabulary *vocabulary, struct worker *worker,
                      const uint8_t *text, size_t size, size_t start, size_t count);
int count_chunk_avx2(const struct vocabulary *vocabulary, struct worker *worker,
                     const uint8_t *text, size_t size, size_t start, size_t count, size_t *n_ids);

/* Find the ids of a pre-token by any means, and keep them.
 * Returns their number, or 0 if memory is short. */
size_t encode_missing(const struct vocabulary *vocabulary, struct worker *worker, struct key key,
                      const uint8_t *bytes, size_t length, uint32_t *ids);

/* Make room for `more` ids after those that are there.  Returns 0, or -1 if memory is short. */
int worker_reserve_ids(struct worker *worker, size_t more);

/* Append one id to worker->ids.  Returns 0, or -1 if memory is short. */
int worker_add_id(struct worker *worker, uint32_t id);

/* Make room for `size` bytes of text at worker->text. */
int worker_reserve_text(struct worker *worker, size_t size);
/* Free the memory of an exceptionally long text. */
void worker_trim(struct worker *worker);

#endif
