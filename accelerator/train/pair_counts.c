/* The map from pairs to counts: how it grows. */

#include "train/pair_counts.h"
#include "base/table.h"

enum {
    FIRST_BITS = 10,
    LAST_BITS = 40, /* far more than any memory, so sizes never overflow */
};

static int allocate(struct pair_counts *counts, unsigned bits)
{
    if (bits > LAST_BITS || bits > sizeof(size_t) * 8 - 5)
        return -1;
    counts->entries = table_new(sizeof *counts->entries << bits);
    counts->bits = bits;
    counts->used = 0;
    return counts->entries ? 0 : -1;
}

int pair_counts_open(struct pair_counts *counts)
{
    return allocate(counts, FIRST_BITS);
}

void pair_counts_close(struct pair_counts *counts)
{
    table_free(counts->entries);
    counts->entries = NULL;
}

int pair_counts_reserve(struct pair_counts *counts, size_t n)
{
    struct pair_counts old = *counts;
    unsigned bits = old.bits;
    while (bits <= LAST_BITS && old.used + n > (size_t)1 << (bits - 1))
        bits++;
    if (bits == old.bits)
        return 0;
    if (allocate(counts, bits) < 0) {
        *counts = old;
        return -1;
    }
    for (size_t i = 0; i < (size_t)1 << old.bits; i++)
        if (old.entries[i].pair_and_1)
            *count_of_pair(counts, old.entries[i].pair_and_1 - 1) = old.entries[i].count;
    pair_counts_close(&old);
    return 0;
}
