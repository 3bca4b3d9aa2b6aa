/* Counting pairs of tokens, and runs of them. */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "train/runs.h"

#if defined(__GNUC__)
#define PREFETCH(p) __builtin_prefetch(p, 1)
#else
#define PREFETCH(p) ((void)(p))
#endif

enum {
    AHEAD = 16,       /* pairs fetched ahead of their use */
    AT_ONCE = 1 << 12, /* pairs for which room is made */
    SMALL_COUNTS = 1 << 12,
};

#define MOST_COUNTED (INT64_MAX / 4) /* more can't have been counted */

static inline bool may_join(const uint32_t *pair)
{
    return pair[0] < NO_JOIN && pair[1] < NO_JOIN;
}

static inline void fetch_pair(const struct pair_counts *counts, const uint32_t *pair)
{
    PREFETCH(pair_place(counts, make_pair(pair[0], pair[1])));
}

/* -- Pairs ----------------------------------------------------------------------------------- */

int pair_sums_open(struct pair_sums *sums, size_t most)
{
    *sums = (struct pair_sums){.most = most};
    return pair_counts_open(&sums->counts);
}

void pair_sums_close(struct pair_sums *sums)
{
    pair_counts_close(&sums->counts);
}

/* A count that half of all pairs do not exceed; all large counts are treated as one. */
static int64_t middle_count(const struct pair_counts *counts)
{
    size_t having[SMALL_COUNTS] = {0}, seen = 0;
    for (size_t i = 0; i < (size_t)1 << counts->bits; i++)
        if (counts->entries[i].pair_and_1) {
            int64_t count = counts->entries[i].count;
            having[count < SMALL_COUNTS ? count : SMALL_COUNTS - 1]++;
        }
    int64_t count = 0;
    while (count < SMALL_COUNTS - 1 && (seen += having[count]) <= counts->used / 2)
        count++;
    return count;
}

/* Forget the rarer half.
 *
 * NOTE: the new table has its full size from the start.  Entries come in the order of their hashes;
 * in a smaller table, they would all crowd together at its beginning. */
static int forget_rare(struct pair_sums *sums)
{
    struct pair_counts old = sums->counts, kept;
    int64_t rare = middle_count(&old);
    if (pair_counts_open(&kept) < 0)
        return -1;
    if (pair_counts_reserve(&kept, old.used) < 0) {
        pair_counts_close(&kept);
        return -1;
    }
    for (size_t i = 0; i < (size_t)1 << old.bits; i++)
        if (old.entries[i].pair_and_1 && old.entries[i].count > rare)
            *count_of_pair(&kept, old.entries[i].pair_and_1 - 1) = old.entries[i].count;
    pair_counts_close(&old);
    sums->counts = kept;
    sums->missed += rare;
    return 0;
}

static int count_pairs(struct pair_sums *sums, const uint32_t *text, size_t n)
{
    if (pair_counts_reserve(&sums->counts, n) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            fetch_pair(&sums->counts, text + i + AHEAD);
        if (may_join(text + i))
            ++*count_of_pair(&sums->counts, make_pair(text[i], text[i + 1]));
    }
    return 0;
}

int pair_sums_add(struct pair_sums *sums, const uint32_t *text, size_t n)
{
    for (size_t i = 0; i + 1 < n; i += AT_ONCE) {
        if (count_pairs(sums, text + i, n - 1 - i < AT_ONCE ? n - 1 - i : AT_ONCE) < 0)
            return -1;
        while (sums->counts.used > sums->most)
            if (forget_rare(sums) < 0)
                return -1;
    }
    return 0;
}

int pair_sums_merge(struct pair_sums *sums, const struct counted_pair *pairs, size_t n,
                    int64_t missed)
{
    if (missed < 0 || missed > MOST_COUNTED - sums->missed)
        return 1;
    sums->missed += missed;
    for (size_t i = 0; i < n; i++) {
        if (pairs[i].count <= 0 || pairs[i].count > MOST_COUNTED || !may_join(pairs[i].tokens))
            return 1;
        if (pair_counts_reserve(&sums->counts, 1) < 0)
            return -1;
        int64_t *count =
            count_of_pair(&sums->counts, make_pair(pairs[i].tokens[0], pairs[i].tokens[1]));
        if (*count > MOST_COUNTED - pairs[i].count)
            return 1;
        *count += pairs[i].count;
        while (sums->counts.used > sums->most)
            if (forget_rare(sums) < 0)
                return -1;
    }
    return 0;
}

static int compare_falling(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

int64_t pair_sums_nth(const struct pair_sums *sums, size_t n)
{
    size_t used = 0;
    if (!n || n > sums->counts.used)
        return 0;
    int64_t *counts = malloc(sums->counts.used * sizeof *counts);
    if (!counts)
        return -1;
    for (size_t i = 0; i < (size_t)1 << sums->counts.bits; i++)
        if (sums->counts.entries[i].pair_and_1)
            counts[used++] = sums->counts.entries[i].count;
    qsort(counts, used, sizeof *counts, compare_falling);
    int64_t nth = counts[n - 1];
    free(counts);
    return nth;
}

/* -- Runs ------------------------------------------------------------------------------------ */

int run_sums_open(struct run_sums *sums, uint64_t seed)
{
    *sums = (struct run_sums){0};
    byte_map_open(&sums->runs, seed);
    return pair_counts_open(&sums->keep);
}

void run_sums_close(struct run_sums *sums)
{
    pair_counts_close(&sums->keep);
    byte_map_close(&sums->runs);
    free(sums->key);
}

int run_sums_keep(struct run_sums *sums, uint32_t left, uint32_t right)
{
    const uint32_t pair[2] = {left, right};
    if (!may_join(pair))
        return 0;
    if (pair_counts_reserve(&sums->keep, 1) < 0)
        return -1;
    *count_of_pair(&sums->keep, make_pair(left, right)) = 1;
    return 0;
}

static int count_run(struct run_sums *sums, const uint32_t *run, size_t n)
{
    if (n > SIZE_MAX / 2 / PACKED)
        return -1;
    if (sums->key_room < n * PACKED) {
        uint8_t *key = realloc(sums->key, 2 * n * PACKED);
        if (!key)
            return -1;
        sums->key = key;
        sums->key_room = 2 * n * PACKED;
    }
    for (size_t i = 0; i < n; i++)
        for (unsigned byte = 0; byte < PACKED; byte++)
            sums->key[PACKED * i + byte] = (uint8_t)(run[i] >> 8 * byte);
    uint64_t *count = byte_map_at(&sums->runs, sums->key, n * PACKED);
    if (!count)
        return -1;
    ++*count;
    return 0;
}

int run_sums_add(struct run_sums *sums, const uint32_t *text, size_t n)
{
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD + 1 < n)
            fetch_pair(&sums->keep, text + i + AHEAD);
        if (i + 1 < n && may_join(text + i) &&
            find_pair(&sums->keep, make_pair(text[i], text[i + 1]))->pair_and_1)
            continue;
        if (i > start && count_run(sums, text + start, i + 1 - start) < 0)
            return -1;
        start = i + 1;
    }
    return 0;
}
