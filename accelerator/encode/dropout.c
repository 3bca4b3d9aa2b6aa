/* Merging with dropout, as in "BPE-Dropout: Simple and Effective Subword Regularization" (Provilkov
 * et al., 2020), and as in HuggingFace's tokenizers, with the same distribution of results:
 *
 * a heap contains the possible merges, the lowest rank first, then the leftmost.  The merge on top
 * is skipped at random.  If it isn't skipped, it is applied, unless its parts are gone, and all
 * skipped merges come back.  When the heap is empty, the skipped merges are not applied.
 *
 * bpe_tokenizer_tools/support/dropout.py does the same in Python, draw for draw. */

#include <stdlib.h>

#include "encode/dropout.h"

#define NOWHERE UINT32_MAX /* no part, or a part that was merged into its left neighbor */

enum { MAX_DROPPING_BYTES = 1 << 28 }; /* of a pre-token: it takes 60 times as much memory */

struct part {
    uint32_t id, before, after;
};

/* Merges as rank << 32 | place, so that the smallest is the next. */
struct queue {
    uint64_t *entries;
    size_t n;
};

void dropout_release(struct dropout *dropout)
{
    free(dropout->block);
    dropout->block = NULL;
    dropout->size = 0;
}

static bool passes_over(struct dropout *dropout)
{
    uint64_t z = dropout->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return ((z ^ (z >> 31)) >> 11) < dropout->limit;
}

static void push(struct queue *queue, uint64_t entry)
{
    size_t at = queue->n++;
    while (at) {
        size_t above = (at - 1) / 2;
        if (queue->entries[above] <= entry)
            break;
        queue->entries[at] = queue->entries[above];
        at = above;
    }
    queue->entries[at] = entry;
}

static uint64_t pop(struct queue *queue)
{
    uint64_t *entries = queue->entries, top = entries[0], last = entries[--queue->n];
    size_t at = 0, below;
    while ((below = 2 * at + 1) < queue->n) {
        if (below + 1 < queue->n && entries[below + 1] < entries[below])
            below++;
        if (last <= entries[below])
            break;
        entries[at] = entries[below];
        at = below;
    }
    entries[at] = last;
    return top;
}

static void push_merge(const struct vocabulary *v, struct queue *queue, const struct part *parts,
                       uint32_t at)
{
    uint32_t rank = rank_of(v, parts[at].id, parts[parts[at].after].id);
    if (rank != NO_RANK)
        push(queue, (uint64_t)rank << 32 | at);
}

/* Merge the pair at `place` into one part.  Returns false if it is gone. */
static bool apply(const struct vocabulary *v, struct part *parts, uint32_t at, uint32_t rank)
{
    uint32_t taken = parts[at].after, id = joined_id(v, rank);
    if (parts[at].id == NOWHERE || taken == NOWHERE)
        return false;
    uint32_t now = rank_of(v, parts[at].id, parts[taken].id);
    if (now == NO_RANK || joined_id(v, now) != id)
        return false;
    uint32_t after = parts[taken].after;
    parts[at].id = id;
    parts[at].after = after;
    parts[taken].id = NOWHERE;
    if (after != NOWHERE)
        parts[after].before = at;
    return true;
}

static void merge_all(const struct vocabulary *v, struct dropout *dropout, struct part *parts,
                      struct queue queue, struct queue passed)
{
    while (queue.n) {
        uint64_t entry = pop(&queue);
        if (passes_over(dropout)) {
            passed.entries[passed.n++] = entry;
            continue;
        }
        while (passed.n)
            push(&queue, passed.entries[--passed.n]);
        uint32_t at = (uint32_t)entry;
        if (!apply(v, parts, at, (uint32_t)(entry >> 32)))
            continue;
        if (parts[at].before != NOWHERE)
            push_merge(v, &queue, parts, parts[at].before);
        if (parts[at].after != NOWHERE)
            push_merge(v, &queue, parts, at);
    }
}

/* Write the ids of a pre-token.  Returns their number, or 0 if memory is short. */
static size_t merge_dropping(const struct vocabulary *v, struct dropout *dropout,
                             const uint8_t *bytes, size_t n, uint32_t *ids)
{
    if (n > MAX_DROPPING_BYTES)
        return 0;
    /* At first n - 1 merges are possible, and each that is applied brings two more at most. */
    size_t room = 3 * n, size = 2 * room * sizeof(uint64_t) + n * sizeof(struct part);
    if (size > dropout->size) {
        dropout_release(dropout);
        dropout->block = malloc(size);
        if (!dropout->block)
            return 0;
        dropout->size = size;
    }
    struct queue queue = {dropout->block, 0}, passed = {queue.entries + room, 0};
    struct part *parts = (struct part *)(passed.entries + room);
    for (uint32_t i = 0; i < n; i++)
        parts[i] = (struct part){.id = v->byte_ids[bytes[i]],
                                 .before = i ? i - 1 : NOWHERE,
                                 .after = i + 1 < n ? i + 1 : NOWHERE};
    for (uint32_t i = 0; i + 1 < n; i++)
        push_merge(v, &queue, parts, i);
    merge_all(v, dropout, parts, queue, passed);
    size_t count = 0;
    for (uint32_t i = 0; i != NOWHERE; i = parts[i].after)
        ids[count++] = parts[i].id;
    return count;
}

int encode_pieces_dropping(const struct vocabulary *v, struct worker *worker,
                           struct dropout *dropout, const uint8_t *text, size_t start, size_t count)
{
    if (!count)
        return 0;
    if (worker_reserve_ids(worker, worker->ends[count - 1] - start) < 0)
        return -1;
    for (size_t i = 0; i < count; start = worker->ends[i++]) {
        size_t n = merge_dropping(v, dropout, text + start, worker->ends[i] - start,
                                  worker->ids + worker->n_ids);
        if (!n)
            return -1;
        worker->n_ids += n;
    }
    return 0;
}

int encode_text_dropping(const struct vocabulary *v, struct worker *worker, struct cutter cutter,
                         struct dropout *dropout, const uint8_t *text, size_t size)
{
    size_t position = 0;
    for (;;) {
        size_t start = position;
        size_t count = cut(cutter, text, size, &position, worker->ends, CHUNK_ROOM);
        if (!count)
            return 0;
        if (encode_pieces_dropping(v, worker, dropout, text, start, count) < 0)
            return -1;
    }
}
