/* Encoding: pre-tokens to ids, by the cache or by merging. */

#include <stdlib.h>
#include <string.h>

#include "encode/chunk_template.h"

/* -- Workers --------------------------------------------------------------------------------- */

struct worker *worker_new(void)
{
    struct worker *worker = calloc(1, sizeof *worker);
    if (worker && cache_open(&worker->cache) < 0) {
        worker_free(worker);
        worker = NULL;
    }
    return worker;
}

void worker_free(struct worker *worker)
{
    if (!worker)
        return;
    cache_close(&worker->cache);
    merge_memory_release(&worker->merging);
    merge_memory_release(&worker->joining);
    free(worker->ids);
    free(worker->text);
    free(worker);
}

int worker_reserve_ids(struct worker *worker, size_t more)
{
    if (worker->ids_room - worker->n_ids >= more)
        return 0;
    size_t room = worker->n_ids + more + worker->n_ids / 2;
    if (room > SIZE_MAX / sizeof *worker->ids)
        return -1;
    uint32_t *ids = realloc(worker->ids, room * sizeof *ids);
    if (!ids)
        return -1;
    worker->ids = ids;
    worker->ids_room = room;
    return 0;
}

int worker_add_id(struct worker *worker, uint32_t id)
{
    if (worker_reserve_ids(worker, 1) < 0)
        return -1;
    worker->ids[worker->n_ids++] = id;
    return 0;
}

int worker_reserve_text(struct worker *worker, size_t size)
{
    if (worker->text_room >= size)
        return 0;
    free(worker->text);
    worker->text = malloc(size);
    worker->text_room = worker->text ? size : 0;
    return worker->text ? 0 : -1;
}

void worker_trim(struct worker *worker)
{
    if (worker->ids_room > KEPT_IDS) {
        free(worker->ids);
        worker->ids = NULL;
        worker->ids_room = 0;
    }
    if (worker->text_room > KEPT_IDS) {
        free(worker->text);
        worker->text = NULL;
        worker->text_room = 0;
    }
    worker->n_ids = 0;
}

/* -- A chunk of pre-tokens ------------------------------------------------------------------- */

size_t encode_missing(const struct vocabulary *v, struct worker *worker, struct key key,
                      const uint8_t *bytes, size_t length, uint32_t *ids)
{
    size_t count = cache_find(&worker->cache, key, bytes, length, ids);
    if (count)
        return count;
    worker->cache.misses++;
    uint32_t whole = v->whole ? whole_token(v, key, bytes, length) : NO_TOKEN;
    if (whole != NO_TOKEN) {
        ids[0] = whole;
        count = 1;
    } else {
        count = merge_bytes(v, &worker->merging, bytes, length, ids);
    }
    if (count)
        cache_keep(&worker->cache, key, bytes, length, ids, count);
    return count;
}

static inline uint64_t find_ids(const struct short_line *line, struct key key)
{
    return find_in_line(line, key);
}

/* Make room: for as many ids as bytes, at most; and a hit may write 3 where it has only one. */
static int reserve_ids(struct worker *worker, size_t start, size_t count)
{
    return worker_reserve_ids(worker, worker->ends[count - 1] - start + 4);
}

int encode_plain_pieces(const struct vocabulary *v, struct worker *worker, const uint8_t *text,
                        size_t size, size_t start, size_t count)
{
    if (!count)
        return 0;
    if (reserve_ids(worker, start, count) < 0)
        return -1;
#if defined(BPE_WITH_AVX2)
    if (v->use_avx2)
        return encode_chunk_avx2(v, worker, text, size, start, count);
#endif
    return encode_chunk(v, worker, text, size, start, count);
}

int encode_pieces(const struct vocabulary *v, struct worker *worker, const uint8_t *text,
                  size_t size, size_t start, size_t count)
{
    if (v->superwords)
        return encode_in_two_stages(v, worker, text, size, start, count);
    return encode_plain_pieces(v, worker, text, size, start, count);
}

int count_pieces(const struct vocabulary *v, struct worker *worker, const uint8_t *text, size_t size,
                 size_t start, size_t count, size_t *n_ids)
{
    size_t before = worker->n_ids;
    if (v->superwords) {
        if (encode_in_two_stages(v, worker, text, size, start, count) < 0)
            return -1;
        *n_ids += worker->n_ids - before;
        worker->n_ids = before;
        return 0;
    }
    if (!count)
        return 0;
    if (reserve_ids(worker, start, count) < 0)
        return -1;
#if defined(BPE_WITH_AVX2)
    if (v->use_avx2)
        return count_chunk_avx2(v, worker, text, size, start, count, n_ids);
#endif
    return count_chunk(v, worker, text, size, start, count, n_ids);
}

/* -- Texts ----------------------------------------------------------------------------------- */

int encode_text(const struct vocabulary *v, struct worker *worker, struct cutter cutter,
                const uint8_t *text, size_t size, bool keep)
{
    size_t total = 0, position = 0;
    for (;;) {
        size_t start = position;
        size_t count = cut(cutter, text, size, &position, worker->ends, CHUNK_ROOM);
        if (!count)
            break;
        if (worker->needless && atomic_load_explicit(worker->needless, memory_order_relaxed))
            return 1;
        int status = keep ? encode_pieces(v, worker, text, size, start, count)
                          : count_pieces(v, worker, text, size, start, count, &total);
        if (status < 0)
            return -1;
    }
    if (!keep)
        worker->n_ids = total;
    return 0;
}

int encode_until(const struct vocabulary *v, struct worker *worker, struct cutter cutter,
                 const uint8_t *text, size_t size, size_t most)
{
    size_t position = 0, start = 0, count = 0, first = worker->n_ids;
    size_t pretokens = 3, ids = 4; /* a guess, at first */
    while (worker->n_ids <= most) {
        /* As many pre-tokens as have that many ids, if the next are like those before. */
        size_t missing = most - worker->n_ids < CHUNK ? most - worker->n_ids + 1 : CHUNK;
        size_t wanted = (missing * pretokens + ids - 1) / ids;
        if (!count)
            count = cut(cutter, text, size, &position, worker->ends, wanted + SCAN_MARGIN);
        if (!count)
            break;
        size_t n = count < wanted ? count : wanted, end = worker->ends[n - 1];
        if (encode_pieces(v, worker, text, size, start, n) < 0)
            return -1;
        start = end;
        count -= n;
        if (v->superwords) { /* then these ends were written over */
            position = start;
            count = 0;
        }
        memmove(worker->ends, worker->ends + n, count * sizeof *worker->ends);
        pretokens += n;
        ids = 4 + worker->n_ids - first;
    }
    return 0;
}
