/* Counting pre-tokens. */

#ifndef BPE_TRAIN_COUNT_H
#define BPE_TRAIN_COUNT_H

#include <stddef.h>
#include <stdint.h>

#include "scan/scan.h"
#include "train/byte_map.h"

enum { WAITING = 512 }; /* pre-tokens; each waits for its memory while the others are looked up */

/* The pre-tokens one thread has counted.  A count goes up by one at a time, so 64 bits last.
 *
 * INVARIANT: the map has room for as many new short pre-tokens as can wait, so no entry moves while
 * some wait. */
struct counter {
    struct byte_map map;
    size_t n_waiting;
    struct key keys[WAITING];
    struct short_item *places[WAITING];
    size_t ends[WAITING];

    uint8_t *text; /* for a text that must be rewritten as UTF-8 first */
    size_t text_room;
};

struct counter *counter_new(uint64_t seed); /* NULL if memory is short */
void counter_free(struct counter *counter);

/* Make room for a text of this many bytes.  Returns 0, or -1 if memory is short. */
int counter_reserve_text(struct counter *counter, size_t size);

/* Free that room if it is larger than this many bytes. */
void counter_trim(struct counter *counter, size_t size);

/* Count the pre-tokens of a text, or the text as one pre-token; an empty text has none.  Some wait
 * until counter_finish counts them.  All return 0, or -1 if memory is short. */
int count_text(struct counter *counter, struct cutter cutter, const uint8_t *text, size_t size);
int count_whole(struct counter *counter, const uint8_t *text, size_t size);
int counter_finish(struct counter *counter);

#endif
