/* A chunk of pre-tokens to ids, by the cache: the loop in which most time is spent.
 *
 * Files that include this define `find_ids` first, which does what find_in_line (cache.h) does. */

#ifndef BPE_ENCODE_CHUNK_TEMPLATE_H
#define BPE_ENCODE_CHUNK_TEMPLATE_H

#include "encode/encode.h"

#if defined(__GNUC__)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PREFETCH(p) __builtin_prefetch(p)
#else
#define LIKELY(x) (x)
#define UNLIKELY(x) (x)
#define PREFETCH(p) ((void)(p))
#endif

static inline uint64_t find_ids(const struct short_line *line, struct key key);

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
        worker->lengths[i] = (uint8_t)length; /* used for short ones only */
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

/* The result for a chunk: how many pre-tokens need more than their words, and how many of the
 * others have one id, not two. */
struct found {
    size_t n_special, n_single;
};

/* Look up all short pre-tokens of a chunk, and have fetched what those need that take longer: it is
 * on its way while others are looked up. */
ALWAYS_INLINE struct found find_words(const struct vocabulary *v, struct worker *worker,
                                      size_t count)
{
    const struct cache *cache = &worker->cache;
    size_t n_special = 0, n_single = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t place = worker->places[i];
        uint64_t word = 0;
        if (LIKELY(place != NOT_SHORT))
            word = find_ids(&cache->lines[place], worker->keys[i]);
        worker->words[i] = word;
        worker->special[n_special] = (uint16_t)i;
        uint64_t second = word >> (HIGH_KEY_BITS + ID_BITS);
        n_special += !word | (second == STORED_IDS);
        n_single += second == NO_ID;
    }
    for (size_t i = 0; i < n_special; i++) {
        size_t at = worker->special[i];
        uint64_t word = worker->words[at];
        if (word)
            PREFETCH(stored_at(cache, word >> HIGH_KEY_BITS & NO_ID));
        else if (worker->places[at] != NOT_SHORT && v->whole)
            prefetch_whole(v, worker->keys[at], worker->lengths[at]);
    }
    return (struct found){n_special, n_single};
}

/* The ids of a chunk, of which no more are known than those of short pre-tokens.
 *
 * NOTE: a miss may empty the cache.  Then records of ids may have been written over that words
 * found before refer to; so these count no longer. */
static inline int encode_chunk(const struct vocabulary *v, struct worker *worker,
                               const uint8_t *text, size_t size, size_t start, size_t count)
{
    struct cache *cache = &worker->cache;
    size_t before = worker->n_ids;
    find_places(worker, text, size, start, count);
    (void)find_words(v, worker, count);
    uint32_t *out = worker->ids + before;
    cache->lookups += count;
    for (size_t i = 0; i < count; i++) {
        size_t end = worker->ends[i];
        uint64_t ids = worker->words[i];
        if (LIKELY(ids)) { /* never 0: see keep_short */
            ids >>= HIGH_KEY_BITS;
            uint32_t first = ids & NO_ID, second = (uint32_t)(ids >> ID_BITS);
            if (LIKELY(second != STORED_IDS)) {
                out[0] = first;
                out[1] = second;
                out += 1 + (second != NO_ID);
            } else {
                out += load_stored(cache, first, out);
            }
        } else {
            uint32_t times_emptied = cache->times_emptied;
            size_t made =
                encode_missing(v, worker, worker->keys[i], text + start, end - start, out);
            if (!made)
                return -1;
            if (UNLIKELY(cache->times_emptied != times_emptied))
                memset(worker->words + i, 0, (count - i) * sizeof *worker->words);
            out += made;
        }
        start = end;
    }
    worker->n_ids = (size_t)(out - worker->ids);
    return 0;
}

/* Count the ids of a chunk: most words show how many there are.  There is room behind worker->ids
 * for those of the others, one after the other.  See the note above. */
static inline int count_chunk(const struct vocabulary *v, struct worker *worker,
                              const uint8_t *text, size_t size, size_t start, size_t count,
                              size_t *n_ids)
{
    struct cache *cache = &worker->cache;
    uint32_t times_emptied = cache->times_emptied;
    find_places(worker, text, size, start, count);
    struct found found = find_words(v, worker, count);
    cache->lookups += count;
    *n_ids += 2 * (count - found.n_special) - found.n_single;
    for (size_t i = 0; i < found.n_special; i++) {
        size_t at = worker->special[i], first = at ? worker->ends[at - 1] : start;
        uint64_t word = worker->words[at];
        if (word && cache->times_emptied == times_emptied) {
            *n_ids += stored_at(cache, word >> HIGH_KEY_BITS & NO_ID)[0];
            continue;
        }
        size_t made = encode_missing(v, worker, worker->keys[at], text + first,
                                     worker->ends[at] - first, worker->ids + worker->n_ids);
        if (!made)
            return -1;
        *n_ids += made;
    }
    return 0;
}

#endif
