/* Encoding: pre-tokens to ids, by the cache or by merging. */

#include <stdlib.h>
#include <string.h>

#include "encode.h"

#if defined(__GNUC__)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PREFETCH(p) __builtin_prefetch(p)
#else
#define LIKELY(x) (x)
#define UNLIKELY(x) (x)
#define PREFETCH(p) ((void)(p))
#endif

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
    free(worker->ids);
    free(worker->text);
    free(worker);
}

/* Make room for `more` ids after those that are there. */
static int reserve_ids(struct worker *worker, size_t more)
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

/* A place above it is not in the table of short pre-tokens. */
#define NOT_SHORT UINT32_MAX

/* Make the keys of a chunk, and have the lines of the cache fetched where they may be. */
static void find_places(struct worker *worker, const uint8_t *text, size_t size, size_t start,
                        size_t count)
{
    const struct cache *cache = &worker->cache;
    for (size_t i = 0; i < count; i++) {
        size_t length = worker->ends[i] - start;
        const uint8_t *p = text + start;
        start = worker->ends[i];
        struct key key = {0, 0};
        worker->places[i] = NOT_SHORT;
        if (LIKELY(length <= KEY_BYTES)) {
            /* A key takes 16 bytes, and nothing is read beyond the text. */
            key = LIKELY((size_t)(text + size - p) >= 16) ? make_key(p, length)
                                                          : make_key_safely(p, length);
            if (LIKELY(is_short(key, p, length))) {
                const struct short_line *line = short_line_of(cache, key);
                PREFETCH(line);
                worker->places[i] = (uint32_t)(line - cache->lines);
            } else {
                key = with_length(key, length);
                PREFETCH(medium_place(cache, key));
            }
        } else if (length <= LONG_BYTES) {
            key.low = hash_long(p, length);
            PREFETCH(long_place(cache, key.low, 0));
        }
        worker->keys[i] = key;
    }
}

/* Find the ids of a pre-token that is not in the table of short ones, by any means, and keep them.
 * Returns their number, or 0 if memory is short. */
static size_t encode_missing(const struct vocabulary *v, struct worker *worker, struct key key,
                             bool is_short, const uint8_t *bytes, size_t length, uint32_t *ids)
{
    size_t count;
    if (!is_short && (count = cache_find(&worker->cache, key, bytes, length, ids)) != 0)
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

/* NOTE: a miss may make the table grow, or empty it.  Then the places of the rest of the chunk
 * are no longer right; a pre-token that is not found there is merged again, no more. */
int encode_pieces(const struct vocabulary *v, struct worker *worker, const uint8_t *text,
                  size_t size, size_t start, size_t count)
{
    struct cache *cache = &worker->cache;
    if (!count)
        return 0;
    /* As many ids as bytes at most; and a hit may write 3 where it has only one. */
    size_t before = worker->n_ids;
    if (reserve_ids(worker, worker->ends[count - 1] - start + 4) < 0)
        return -1;
    find_places(worker, text, size, start, count);
    uint32_t *out = worker->ids + before;
    cache->lookups += count;
    for (size_t i = 0; i < count; i++) {
        size_t end = worker->ends[i];
        uint32_t place = worker->places[i];
        if (LIKELY(place != NOT_SHORT)) {
            uint64_t ids = find_in_line(&cache->lines[place], worker->keys[i]);
            if (LIKELY(ids)) { /* not 0: the second id never is */
                ids >>= HIGH_KEY_BITS;
                uint32_t first = ids & NO_ID, second = (uint32_t)(ids >> ID_BITS);
                if (LIKELY(second != STORED_IDS)) {
                    out[0] = first;
                    out[1] = second;
                    out += 1 + (second != NO_ID);
                } else {
                    out += load_stored(cache, first, out);
                }
                start = end;
                continue;
            }
        }
        size_t made = encode_missing(v, worker, worker->keys[i], place != NOT_SHORT, text + start,
                                     end - start, out);
        if (!made)
            return -1;
        out += made;
        start = end;
    }
    worker->n_ids = (size_t)(out - worker->ids);
    return 0;
}

int encode_text(const struct vocabulary *v, struct worker *worker, scanner *scan,
                const uint8_t *text, size_t size, bool keep)
{
    size_t total = 0, position = 0;
    for (;;) {
        size_t start = position;
        size_t count = scan(text, size, &position, worker->ends, CHUNK_ROOM);
        if (!count)
            break;
        if (encode_pieces(v, worker, text, size, start, count) < 0)
            return -1;
        if (!keep) {
            total += worker->n_ids;
            worker->n_ids = 0;
        }
    }
    if (!keep)
        worker->n_ids = total;
    return 0;
}
