/* Memory for tables. */

#define _DEFAULT_SOURCE /* madvise */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#elif defined(_WIN32)
#include <malloc.h> /* Windows has no aligned_alloc, because free couldn't handle its memory */
#define aligned_alloc(alignment, size) _aligned_malloc(size, alignment)
#define free _aligned_free
#endif

#include "base/table.h"

enum {
    CACHE_LINE = 64,
    LARGE_PAGE = 1 << 21,
};

void *table_new(size_t size)
{
    size_t alignment = size < LARGE_PAGE ? CACHE_LINE : LARGE_PAGE;
    if (size > SIZE_MAX - alignment)
        return NULL;
    size = (size + alignment - 1) / alignment * alignment;
    void *table = aligned_alloc(alignment, size);
    if (!table)
        return NULL;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (alignment == LARGE_PAGE)
        (void)madvise(table, size, MADV_HUGEPAGE); /* only a hint: the system may refuse */
#endif
    return memset(table, 0, size);
}

void table_free(void *table)
{
    free(table);
}
