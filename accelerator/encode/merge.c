/* Merging: join the neighboring pair with the lowest rank, the leftmost first, until no merge
 * applies.
 *
 * How to find it depends on the number of parts: by looking at all of them, in arrays
 * that stay dense (up to 16) or have holes (up to 64), or else by lists of the places of each
 * rank, with a heap of ranks; a vocabulary in unusual order needs a heap of places. */

#include <stdlib.h>
#include <string.h>

#include "encode/merge.h"
#include "encode/merge_short.h"

enum {
    DENSE_UP_TO = 16,
    KEPT_BYTES = 1 << 20, /* larger memory is not kept for the next pre-token */
    MAX_MERGED_BYTES = 1 << 30,
    MEMORY_PER_BYTE = 64, /* of a long pre-token: more than is borrowed for it */
};

#define NOWHERE UINT32_MAX /* no part: places are smaller, by far */

/* -- Up to 16 parts -------------------------------------------------------------------------- */

/* Merge n parts; rank[i] is that of parts i, i+1.  Returns how many are left. */
PLAIN_LOOPS
static inline unsigned merge_in_place(const struct vocabulary *v, uint32_t *part, uint32_t *rank,
                                      unsigned n)
{
    while (n > 1) {
        uint32_t lowest = rank[0];
        unsigned at = 0;
        for (unsigned i = 1; i + 1 < n; i++) {
            at = rank[i] < lowest ? i : at;
            lowest = rank[i] < lowest ? rank[i] : lowest;
        }
        if (lowest == NO_RANK)
            break;
        n--;
        part[at] = joined_id(v, lowest);
        for (unsigned i = at + 1; i < n; i++) {
            part[i] = part[i + 1];
            rank[i - 1] = rank[i];
        }
        if (at && at + 1 < n)
            ranks_around(v, part[at - 1], part[at], part[at + 1], &rank[at - 1], &rank[at]);
        else if (at)
            rank[at - 1] = rank_of(v, part[at - 1], part[at]);
        else if (n > 1)
            rank[0] = rank_of(v, part[0], part[1]);
    }
    return n;
}

PLAIN_LOOPS
static size_t merge_dense(const struct vocabulary *v, const uint8_t *bytes, unsigned n,
                          uint32_t *ids)
{
    uint32_t part[DENSE_UP_TO + 1], rank[DENSE_UP_TO + 1];
    for (unsigned i = 0; i < n; i++)
        part[i] = v->byte_ids[bytes[i]];
    for (unsigned i = 0; i + 1 < n; i++)
        rank[i] = v->byte_pair_ranks[bytes[i] << 8 | bytes[i + 1]];
    n = merge_in_place(v, part, rank, n);
    memcpy(ids, part, n * sizeof *ids);
    return n;
}

PLAIN_LOOPS
static size_t merge_few_ids(const struct vocabulary *v, uint32_t *ids, unsigned n)
{
    uint32_t rank[DENSE_UP_TO + 1];
    for (unsigned i = 0; i + 1 < n; i++)
        rank[i] = rank_of(v, ids[i], ids[i + 1]);
    return merge_in_place(v, ids, rank, n);
}

/* -- Up to 64 parts -------------------------------------------------------------------------- */

/* Keys in memory, of which the smallest is looked for among eight at once. */
struct keys {
    int32_t *at;
};

#define AS_CONSTANTS static PLAIN_LOOPS

#include "encode/merge_template.h"

static inline void load_keys(struct keys *keys, int32_t *first, unsigned room)
{
    (void)room;
    keys->at = first;
}

PLAIN_LOOPS
static inline int32_t smallest_key(const struct keys *keys, unsigned room)
{
    int32_t least = NO_PAIR;
    for (unsigned i = 0; i < room; i += 8)
        for (unsigned j = i; j < i + 8; j++)
            least = keys->at[j] < least ? keys->at[j] : least;
    return least;
}

static inline void replace_key(struct keys *keys, unsigned room, unsigned place, int32_t key)
{
    (void)room;
    keys->at[place] = key;
}

/* -- Memory for more ------------------------------------------------------------------------- */

static void *borrow(struct merge_memory *memory, size_t size)
{
    if (size > memory->size) {
        free(memory->block);
        memory->block = malloc(size);
        memory->size = memory->block ? size : 0;
    }
    return memory->block;
}

static void give_back(struct merge_memory *memory)
{
    if (memory->size > KEPT_BYTES) {
        free(memory->block);
        memory->block = NULL;
        memory->size = 0;
    }
}

void merge_memory_release(struct merge_memory *memory)
{
    free(memory->block);
    free(memory->first_of_rank);
    memset(memory, 0, sizeof *memory);
}

/* The parts as a linked list.  One that was merged into its left neighbor has id NOWHERE.  The
 * rest is for merge_by_ranks: parts of one rank are also in a list.  Fields that are used together
 * are next to each other. */
struct part {
    uint32_t id, before, after;
    uint32_t rank; /* of the list; NO_RANK if the part is in none */
    uint32_t before_in_list, after_in_list;
};

static void link_parts(const uint32_t *ids, uint32_t n, struct part *parts)
{
    for (uint32_t i = 0; i < n; i++)
        parts[i] = (struct part){.id = ids[i],
                                 .before = i ? i - 1 : NOWHERE,
                                 .after = i + 1 < n ? i + 1 : NOWHERE,
                                 .rank = NO_RANK};
}

static void join(struct part *parts, uint32_t at, uint32_t id)
{
    uint32_t taken = parts[at].after, after = parts[taken].after;
    parts[at].id = id;
    parts[at].after = after;
    parts[taken].id = NOWHERE;
    if (after != NOWHERE)
        parts[after].before = at;
}

/* The rank of a part and the next one. */
static uint32_t rank_at(const struct vocabulary *v, const struct part *parts, uint32_t at)
{
    uint32_t after = parts[at].after;
    return after == NOWHERE ? NO_RANK : rank_of(v, parts[at].id, parts[after].id);
}

static size_t collect(const struct part *parts, uint32_t *ids)
{
    size_t count = 0;
    for (uint32_t at = 0; at != NOWHERE; at = parts[at].after)
        ids[count++] = parts[at].id;
    return count;
}

/* -- A heap ---------------------------------------------------------------------------------- */

struct heap {
    uint64_t *items;
    size_t size;
};

static void heap_sink(struct heap *heap, size_t at, uint64_t item)
{
    for (size_t child; (child = 2 * at + 1) < heap->size; at = child) {
        if (child + 1 < heap->size && heap->items[child + 1] < heap->items[child])
            child++;
        if (item <= heap->items[child])
            break;
        heap->items[at] = heap->items[child];
    }
    heap->items[at] = item;
}

static void heap_push(struct heap *heap, uint64_t item)
{
    size_t at = heap->size++;
    for (size_t parent; at && item < heap->items[parent = (at - 1) / 2]; at = parent)
        heap->items[at] = heap->items[parent];
    heap->items[at] = item;
}

static uint64_t heap_pop(struct heap *heap)
{
    uint64_t least = heap->items[0], last = heap->items[--heap->size];
    if (heap->size)
        heap_sink(heap, 0, last);
    return least;
}

/* -- More parts, any vocabulary -------------------------------------------------------------- */

/* The heap contains rank << 32 | place.  An entry is out of date if the pair there has another rank
 * by now.  There are never more than 2n: n - 1 at first, and each merge takes one and adds at most
 * two. */
static size_t merge_by_heap(const struct vocabulary *v, struct merge_memory *memory, uint32_t *ids,
                            uint32_t n)
{
    struct heap heap = {.items = borrow(memory, n * (2 * sizeof(uint64_t) + sizeof(struct part)))};
    if (!heap.items)
        return 0;
    struct part *parts = (struct part *)(heap.items + 2 * (size_t)n);
    link_parts(ids, n, parts);
    for (uint32_t i = 0; i + 1 < n; i++) {
        uint32_t rank = rank_at(v, parts, i);
        if (rank != NO_RANK)
            heap.items[heap.size++] = (uint64_t)rank << 32 | i;
    }
    for (size_t i = heap.size / 2; i-- > 0;)
        heap_sink(&heap, i, heap.items[i]);
    while (heap.size) {
        uint64_t item = heap_pop(&heap);
        uint32_t rank = (uint32_t)(item >> 32), at = (uint32_t)item;
        if (parts[at].id == NOWHERE || rank_at(v, parts, at) != rank)
            continue;
        join(parts, at, joined_id(v, rank));
        uint32_t new_rank = rank_at(v, parts, at), before = parts[at].before;
        if (new_rank != NO_RANK)
            heap_push(&heap, (uint64_t)new_rank << 32 | at);
        if (before != NOWHERE && (new_rank = rank_at(v, parts, before)) != NO_RANK)
            heap_push(&heap, (uint64_t)new_rank << 32 | before);
    }
    size_t count = collect(parts, ids);
    give_back(memory);
    return count;
}

/* -- More parts, a vocabulary in order ------------------------------------------------------- */

/* In a vocabulary in order, joining a pair brings up only pairs of higher ranks.  So all places of
 * one rank can be joined in one go, and in any order: two pairs of the same rank can only overlap
 * if they are the same token again and again, and such a run is joined from its left end.
 *
 * All places of a rank are in a list, which begins at first_of_rank[rank]; the heap holds, once,
 * each rank that has a list.  So the cost is that of the places, plus a little for each rank. */

#define NO_PLACE_LEFT (UINT32_MAX - 1) /* the list of a rank that is still in the heap */

struct ranked {
    const struct vocabulary *v;
    struct part *parts;
    uint32_t *first;
    struct heap heap;
};

static void unqueue(struct ranked *r, uint32_t at)
{
    struct part *part = &r->parts[at];
    if (part->rank == NO_RANK)
        return;
    if (part->before_in_list != NOWHERE)
        r->parts[part->before_in_list].after_in_list = part->after_in_list;
    else
        r->first[part->rank] =
            part->after_in_list != NOWHERE ? part->after_in_list : NO_PLACE_LEFT;
    if (part->after_in_list != NOWHERE)
        r->parts[part->after_in_list].before_in_list = part->before_in_list;
    part->rank = NO_RANK;
}

/* Put a place, which is in no list, into that of its pair's rank. */
static void enqueue(struct ranked *r, uint32_t at, uint32_t rank)
{
    struct part *part = &r->parts[at];
    part->rank = rank;
    if (rank == NO_RANK)
        return;
    uint32_t first = r->first[rank];
    if (first == NOWHERE)
        heap_push(&r->heap, rank);
    if (first == NOWHERE || first == NO_PLACE_LEFT)
        first = NOWHERE;
    else
        r->parts[first].before_in_list = at;
    part->before_in_list = NOWHERE;
    part->after_in_list = first;
    r->first[rank] = at;
}

static void join_ranked(struct ranked *r, uint32_t at, uint32_t rank)
{
    uint32_t before = r->parts[at].before;
    unqueue(r, at);
    unqueue(r, r->parts[at].after);
    join(r->parts, at, joined_id(r->v, rank));
    enqueue(r, at, rank_at(r->v, r->parts, at));
    if (before != NOWHERE) {
        unqueue(r, before);
        enqueue(r, before, rank_at(r->v, r->parts, before));
    }
}

/* Join a run of one token from its left end, given any place in it with two of them. */
static void join_run(struct ranked *r, uint32_t at, uint32_t rank)
{
    struct part *parts = r->parts;
    uint32_t id = parts[at].id;
    while (parts[at].before != NOWHERE && parts[parts[at].before].id == id)
        at = parts[at].before;
    while (at != NOWHERE && parts[at].id == id) {
        uint32_t after = parts[at].after;
        if (after == NOWHERE || parts[after].id != id)
            break;
        join_ranked(r, at, rank);
        at = parts[at].after;
    }
}

/* `bytes` are those of the ids, if they are bytes still: what they make is found sooner. */
static size_t merge_by_ranks(const struct vocabulary *v, struct merge_memory *memory, uint32_t *ids,
                             uint32_t n, const uint8_t *bytes)
{
    if (!memory->first_of_rank) {
        memory->first_of_rank = malloc(v->n_ranks * sizeof *memory->first_of_rank);
        if (!memory->first_of_rank)
            return 0;
        memset(memory->first_of_rank, 0xFF, v->n_ranks * sizeof *memory->first_of_rank);
    }
    /* A rank is in the heap once, and there are less than 3n pairs, old and new. */
    size_t in_heap = v->n_ranks < 3 * (size_t)n ? v->n_ranks : 3 * (size_t)n;
    size_t size = in_heap * sizeof(uint64_t) + n * sizeof(struct part);
    struct ranked r = {.v = v, .first = memory->first_of_rank};
    r.heap.items = borrow(memory, size);
    if (!r.heap.items)
        return 0;
    r.parts = (struct part *)(r.heap.items + in_heap);

    link_parts(ids, n, r.parts);
    for (uint32_t i = n - 1; i-- > 0;) /* so that lists begin at the left */
        enqueue(&r, i,
                bytes ? v->byte_pair_ranks[bytes[i] << 8 | bytes[i + 1]] : rank_at(v, r.parts, i));
    while (r.heap.size) {
        uint32_t rank = (uint32_t)heap_pop(&r.heap);
        for (uint32_t at; (at = r.first[rank]) != NO_PLACE_LEFT;) {
            if (r.parts[at].id == r.parts[r.parts[at].after].id)
                join_run(&r, at, rank);
            else
                join_ranked(&r, at, rank);
        }
        r.first[rank] = NOWHERE;
    }
    size_t count = collect(r.parts, ids);
    give_back(memory);
    return count;
}

/* -- Any number of parts --------------------------------------------------------------------- */

size_t merge_bytes(const struct vocabulary *v, struct merge_memory *memory, const uint8_t *bytes,
                   size_t size, uint32_t *ids)
{
    if (size <= DENSE_UP_TO)
        return merge_dense(v, bytes, (unsigned)size, ids);
#if defined(BPE_WITH_AVX2)
    if (size <= HOLES_UP_TO && v->use_avx2)
        return merge_with_holes_avx2(v, bytes, (unsigned)size, ids);
#endif
    if (size <= HOLES_UP_TO)
        return merge_with_keys(v, bytes, (unsigned)size, ids, ((unsigned)size + 7) / 8 * 8);
    if (size > MAX_MERGED_BYTES || size > SIZE_MAX / MEMORY_PER_BYTE)
        return 0;
    for (size_t i = 0; i < size; i++)
        ids[i] = v->byte_ids[bytes[i]];
    if (v->ordered)
        return merge_by_ranks(v, memory, ids, (uint32_t)size, bytes);
    return merge_by_heap(v, memory, ids, (uint32_t)size);
}

size_t merge_ids(const struct vocabulary *v, struct merge_memory *memory, uint32_t *ids, size_t n)
{
    if (n <= DENSE_UP_TO)
        return merge_few_ids(v, ids, (unsigned)n);
    if (n > MAX_MERGED_BYTES || n > SIZE_MAX / MEMORY_PER_BYTE)
        return 0;
    if (v->ordered)
        return merge_by_ranks(v, memory, ids, (uint32_t)n, NULL);
    return merge_by_heap(v, memory, ids, (uint32_t)n);
}
