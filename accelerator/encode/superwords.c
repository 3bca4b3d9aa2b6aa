/* Preparing a vocabulary with superwords, and encoding with it. */

#include <stdlib.h>
#include <string.h>

#include "encode/encode.h"
#include "encode/superwords.h"

enum {
    LEAST_SHARE = 4,          /* at least one merge in this many makes a word */
    MOST_ENDS = 8,            /* different ids that a token begins with, or ends with */
    BITS_PER_NEIGHBORS = 16,  /* of the filter: one in 16 is found that isn't there, at most */
    FIRST_NEIGHBOR_BITS = 13, /* a kilobyte */
    LAST_NEIGHBOR_BITS = 22,
};

/* -- What belongs to which stage --------------------------------------------------------------- */

void note_meetings(uint64_t meet[MEETINGS], const uint8_t *bytes, size_t length)
{
    for (size_t i = 1; i < length; i++) {
        unsigned pair = (unsigned)bytes[i - 1] << 8 | bytes[i];
        meet[pair >> 6] |= (uint64_t)1 << (pair & 63);
    }
}

/* Whether a token has a space behind something that is not white space. */
static bool is_superword(const struct tokens *tokens, uint32_t id)
{
    struct token token = tokens->by_id[id];
    const uint8_t *bytes = tokens->bytes + token.at;
    for (size_t i = 1; i < token.length; i++)
        if (bytes[i] == ' ' && bytes[i - 1] != ' ' && (bytes[i - 1] > '\r' || bytes[i - 1] < '\t'))
            return true;
    return false;
}

static bool has_superwords(const struct tokens *tokens)
{
    for (uint32_t id = 0; id < tokens->n_ids; id++)
        if (tokens_have(tokens, id) && is_superword(tokens, id))
            return true;
    return false;
}

#define NO_MERGE UINT64_MAX

/* The pair of each rank, left << ID_BITS | right, or NO_MERGE.  NULL if memory is short. */
static uint64_t *pairs_by_rank(const struct vocabulary *v)
{
    size_t size = v->n_ranks * sizeof(uint64_t);
    uint64_t *pairs = malloc(size + 1);
    if (!pairs)
        return NULL;
    memset(pairs, 0xFF, size);
    for (size_t slot = 0; slot < (size_t)1 << v->pair_bits; slot++)
        if (v->pairs[slot] != UINT64_MAX)
            pairs[v->pairs[slot] & NO_RANK] = v->pairs[slot] >> RANK_BITS;
    return pairs;
}

/* The rank of the first superword; and how many merges there are before it, and behind. */
static uint32_t first_superword(const struct vocabulary *v, const struct tokens *tokens,
                                const uint64_t *pairs, size_t n[2])
{
    uint32_t first = NO_RANK;
    n[0] = n[1] = 0;
    for (uint32_t rank = 0; rank < v->n_ranks; rank++) {
        if (pairs[rank] == NO_MERGE)
            continue;
        if (first == NO_RANK && is_superword(tokens, joined_id(v, rank)))
            first = rank;
        n[first != NO_RANK]++;
    }
    return first;
}

/* -- The first stage --------------------------------------------------------------------------- */

static int load_words(struct superwords *s, const struct vocabulary *v, const uint64_t *pairs,
                      uint32_t first, size_t n)
{
    struct merge *merges = malloc((n + 1) * sizeof *merges);
    if (!merges)
        return -1;
    size_t count = 0;
    for (uint32_t rank = 0; rank < first; rank++) {
        if (pairs[rank] == NO_MERGE)
            continue;
        uint32_t left = (uint32_t)(pairs[rank] >> ID_BITS), joined = joined_id(v, rank);
        merges[count++] = (struct merge){left, (uint32_t)pairs[rank] & ID_MASK, joined};
        struct token token = s->tokens->by_id[joined];
        note_meetings(s->meet, s->tokens->bytes + token.at, token.length);
    }
    int status = vocabulary_load(&s->words, v->n_ids, v->byte_ids, merges, count, v->seed);
    s->words.use_avx2 = v->use_avx2;
    free(merges);
    return status;
}

/* -- The second stage -------------------------------------------------------------------------- */

/* The ids of the first stage that tokens begin with, and end with.  A token may have several, if
 * it is made in several ways.  Each list is a chain of `next`; 0 ends it. */
struct ends {
    uint32_t *first, *last; /* where the lists of each id begin */
    uint32_t *ids, *next;
    size_t used, room;
};

static bool open_ends(struct ends *ends, uint32_t n_ids)
{
    memset(ends, 0, sizeof *ends);
    ends->room = 2 * (size_t)n_ids + 64;
    ends->first = calloc(n_ids + (size_t)1, sizeof *ends->first);
    ends->last = calloc(n_ids + (size_t)1, sizeof *ends->last);
    ends->ids = malloc(ends->room * sizeof *ends->ids);
    ends->next = malloc(ends->room * sizeof *ends->next);
    ends->used = 1;
    return ends->first && ends->last && ends->ids && ends->next;
}

static void close_ends(struct ends *ends)
{
    free(ends->first);
    free(ends->last);
    free(ends->ids);
    free(ends->next);
}

/* Add an id to a list.  False if that is too much. */
static bool add_end(struct ends *ends, uint32_t *list, uint32_t id)
{
    unsigned n = 0;
    for (uint32_t at = *list; at; at = ends->next[at], n++)
        if (ends->ids[at] == id)
            return true;
    if (n == MOST_ENDS || ends->used == ends->room)
        return false;
    ends->ids[ends->used] = id;
    ends->next[ends->used] = *list;
    *list = (uint32_t)ends->used++;
    return true;
}

static bool add_ends(struct ends *ends, uint32_t *list, uint32_t others)
{
    for (; others; others = ends->next[others])
        if (!add_end(ends, list, ends->ids[others]))
            return false;
    return true;
}

/* Bytes and tokens of the first stage begin and end with themselves. */
static bool add_words(struct ends *ends, const struct vocabulary *v, const uint64_t *pairs,
                      uint32_t first)
{
    for (int byte = 0; byte < 256; byte++)
        if (!add_end(ends, &ends->first[v->byte_ids[byte]], v->byte_ids[byte]) ||
            !add_end(ends, &ends->last[v->byte_ids[byte]], v->byte_ids[byte]))
            return false;
    for (uint32_t rank = 0; rank < first; rank++) {
        uint32_t id = joined_id(v, rank);
        if (pairs[rank] != NO_MERGE &&
            (!add_end(ends, &ends->first[id], id) || !add_end(ends, &ends->last[id], id)))
            return false;
    }
    return true;
}

static void note_neighbors(struct superwords *s, const struct ends *ends, uint32_t left,
                           uint32_t right)
{
    for (uint32_t a = ends->last[left]; a; a = ends->next[a])
        for (uint32_t b = ends->first[right]; b; b = ends->next[b]) {
            uint64_t hash = pair_hash(&s->words, ends->ids[a], ends->ids[b]);
            uint64_t bit = hash >> (64 - s->neighbor_bits);
            s->neighbors[bit >> 6] |= (uint64_t)1 << (bit & 63);
        }
}

/* Follow the merges of the second stage in their order, so that the parts of each are known. */
static bool find_neighbors(struct superwords *s, const struct vocabulary *v, const uint64_t *pairs,
                           uint32_t first, struct ends *ends)
{
    for (uint32_t rank = first; rank < v->n_ranks; rank++) {
        if (pairs[rank] == NO_MERGE)
            continue;
        uint32_t left = (uint32_t)(pairs[rank] >> ID_BITS), right = (uint32_t)pairs[rank] & ID_MASK;
        uint32_t joined = joined_id(v, rank);
        note_neighbors(s, ends, left, right);
        if (!add_ends(ends, &ends->first[joined], ends->first[left]) ||
            !add_ends(ends, &ends->last[joined], ends->last[right]))
            return false;
    }
    return true;
}

static bool load_neighbors(struct superwords *s, const struct vocabulary *v, const uint64_t *pairs,
                           uint32_t first, size_t n)
{
    struct ends ends;
    s->neighbor_bits = FIRST_NEIGHBOR_BITS;
    while (s->neighbor_bits < LAST_NEIGHBOR_BITS &&
           (size_t)1 << s->neighbor_bits < n * BITS_PER_NEIGHBORS)
        s->neighbor_bits++;
    s->neighbors = calloc((size_t)1 << s->neighbor_bits >> 6, sizeof *s->neighbors);
    bool done = open_ends(&ends, v->n_ids) && s->neighbors &&
                add_words(&ends, v, pairs, first) && find_neighbors(s, v, pairs, first, &ends);
    close_ends(&ends);
    return done;
}

/* -- Both -------------------------------------------------------------------------------------- */

struct superwords *superwords_new(const struct vocabulary *v, const struct tokens *tokens)
{
    if (!v->ordered || v->whole || !has_superwords(tokens))
        return NULL;
    size_t n[2];
    uint64_t *pairs = pairs_by_rank(v);
    uint32_t first = pairs ? first_superword(v, tokens, pairs, n) : NO_RANK;
    struct superwords *s = NULL;
    if (first != NO_RANK && n[0] >= (n[0] + n[1]) / LEAST_SHARE)
        s = calloc(1, sizeof *s);
    if (s) {
        s->tokens = tokens;
        if (load_words(s, v, pairs, first, n[0]) < 0 || !load_neighbors(s, v, pairs, first, n[1])) {
            superwords_free(s);
            s = NULL;
        }
    }
    free(pairs);
    return s;
}

void superwords_free(struct superwords *s)
{
    if (!s)
        return;
    vocabulary_release(&s->words);
    free(s->neighbors);
    free(s);
}

/* -- Encoding ---------------------------------------------------------------------------------- */

/* Where the second stage is: ids before `done` are final; those from `run` on are of one run, as
 * far as `next`, where the text is at `position`. */
struct joining {
    size_t done, run, next, position, piece;
};

/* Merge the run of ids that ends before `next`, and move what it becomes to those that are done. */
static int join_run_of_ids(const struct vocabulary *v, struct worker *worker, struct joining *j)
{
    uint32_t *ids = worker->ids + j->run;
    size_t n = j->next - j->run;
    if (n > 1 && !(n = merge_ids(v, &worker->joining, ids, n)))
        return -1;
    if (j->done != j->run)
        memmove(worker->ids + j->done, ids, n * sizeof *ids);
    j->done += n;
    j->run = j->next;
    return 0;
}

/* Go through the new ids.  The last run may go on. */
static int join_ids(const struct vocabulary *v, struct worker *worker, struct joining *j)
{
    const struct superwords *s = v->superwords;
    for (; j->next < worker->n_ids; j->next++) {
        uint32_t id = worker->ids[j->next];
        if (j->next > j->run) {
            bool ends = j->position == worker->pieces[j->piece];
            j->piece += ends;
            if ((ends || !may_join(s, worker->ids[j->next - 1], id)) &&
                join_run_of_ids(v, worker, j) < 0)
                return -1;
        }
        j->position += token_length(s->tokens, id);
    }
    return 0;
}

static int encode_parts(const struct vocabulary *v, struct worker *worker, struct joining *j,
                        const uint8_t *text, size_t size, size_t start, size_t count)
{
    if (encode_plain_pieces(&v->superwords->words, worker, text, size, start, count) < 0 ||
        join_ids(v, worker, j) < 0)
        return -1;
    size_t rest = worker->n_ids - j->run; /* moved once at most: then there is nothing between */
    if (j->done != j->run)
        memmove(worker->ids + j->done, worker->ids + j->run, rest * sizeof *worker->ids);
    j->run = j->done;
    j->next = worker->n_ids = j->done + rest;
    return 0;
}

/* Cut text[at .. end) into parts, as far as there is room for them: write the end of each behind the
 * n that there are.  Returns where the next one begins.  Without branches: where words end, nobody
 * can predict. */
static size_t cut_into_parts(const uint64_t meet[MEETINGS], const uint8_t *text, size_t at,
                             size_t end, size_t *ends, size_t *n)
{
    size_t count = *n;
    while (++at < end && count < CHUNK) {
        ends[count] = at;
        count += !may_meet(meet, text + at);
    }
    if (count < CHUNK)
        ends[count++] = at = end;
    else
        at = ends[count - 1];
    *n = count;
    return at;
}

int encode_in_two_stages(const struct vocabulary *v, struct worker *worker, const uint8_t *text,
                         size_t size, size_t start, size_t count)
{
    struct joining joining = {worker->n_ids, worker->n_ids, worker->n_ids, start, 0};
    size_t first = start, n_parts = 0;
    memcpy(worker->pieces, worker->ends, count * sizeof *worker->pieces);
    for (size_t i = 0; i < count; start = worker->pieces[i++]) {
        for (size_t at = start; at < worker->pieces[i];) {
            at = cut_into_parts(v->superwords->meet, text, at, worker->pieces[i], worker->ends,
                                &n_parts);
            if (n_parts < CHUNK)
                continue;
            if (encode_parts(v, worker, &joining, text, size, first, n_parts) < 0)
                return -1;
            first = at;
            n_parts = 0;
        }
    }
    if (encode_parts(v, worker, &joining, text, size, first, n_parts) < 0)
        return -1;
    if (joining.next > joining.run && join_run_of_ids(v, worker, &joining) < 0)
        return -1;
    worker->n_ids = joining.done;
    return 0;
}
