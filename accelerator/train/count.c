/* Counting pre-tokens.  Those of up to 15 bytes are counted in groups, because their places in
 * memory are far apart; the rare longer ones are counted immediately. */

#include <stdlib.h>

#include "train/count.h"

#if defined(__GNUC__)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define PREFETCH(p) __builtin_prefetch(p, 1)
#else
#define LIKELY(x) (x)
#define PREFETCH(p) ((void)(p))
#endif

struct counter *counter_new(uint64_t seed)
{
    struct counter *counter = malloc(sizeof *counter);
    if (!counter)
        return NULL;
    byte_map_open(&counter->map, seed);
    counter->n_waiting = 0;
    counter->text = NULL;
    counter->text_room = 0;
    if (byte_map_reserve_shorts(&counter->map, WAITING) < 0) {
        counter_free(counter);
        return NULL;
    }
    return counter;
}

void counter_free(struct counter *counter)
{
    if (!counter)
        return;
    byte_map_close(&counter->map);
    free(counter->text);
    free(counter);
}

int counter_reserve_text(struct counter *counter, size_t size)
{
    if (counter->text_room >= size)
        return 0;
    free(counter->text);
    counter->text = malloc(size);
    counter->text_room = counter->text ? size : 0;
    return counter->text ? 0 : -1;
}

void counter_trim(struct counter *counter, size_t size)
{
    if (counter->text_room <= size)
        return;
    free(counter->text);
    counter->text = NULL;
    counter->text_room = 0;
}

/* Count the waiting pre-tokens. */
static int count_waiting(struct counter *counter)
{
    for (size_t i = 0; i < counter->n_waiting; i++)
        ++*byte_map_short_at(&counter->map, counter->keys[i], counter->places[i]);
    counter->n_waiting = 0;
    return byte_map_reserve_shorts(&counter->map, WAITING);
}

static inline int let_wait(struct counter *counter, struct key key)
{
    struct short_item *place = short_place(&counter->map, key);
    PREFETCH(place);
    counter->keys[counter->n_waiting] = key;
    counter->places[counter->n_waiting] = place;
    return ++counter->n_waiting == WAITING ? count_waiting(counter) : 0;
}

static int count_long(struct counter *counter, const uint8_t *bytes, size_t length)
{
    uint64_t *number = byte_map_at(&counter->map, bytes, length);
    if (!number)
        return -1;
    ++*number;
    return 0;
}

int count_text(struct counter *counter, struct cutter cutter, const uint8_t *text, size_t size)
{
    size_t position = 0, start = 0, n;
    while ((n = cut(cutter, text, size, &position, counter->ends, WAITING)) != 0) {
        for (size_t i = 0; i < n; start = counter->ends[i++]) {
            const uint8_t *p = text + start;
            size_t length = counter->ends[i] - start;
            int status;
            if (LIKELY(length <= KEY_BYTES && size - start >= 16))
                status = let_wait(counter, with_length(make_key(p, length), length));
            else
                status = count_whole(counter, p, length);
            if (status < 0)
                return -1;
        }
    }
    return 0;
}

int count_whole(struct counter *counter, const uint8_t *text, size_t size)
{
    if (!size)
        return 0;
    if (size > KEY_BYTES)
        return count_long(counter, text, size);
    return let_wait(counter, with_length(make_key_safely(text, size), size));
}

int counter_finish(struct counter *counter)
{
    return count_waiting(counter);
}
