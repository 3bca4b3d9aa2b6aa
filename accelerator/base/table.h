/* Memory for tables that are looked up at random places. */

#ifndef BPE_BASE_TABLE_H
#define BPE_BASE_TABLE_H

#include <stddef.h>

/* Zeroed memory that starts at a cache line; NULL if memory is short.  On Linux a
 * large table asks for large pages, so that a look-up does not miss the page table as well. */
void *table_new(size_t size);
void table_free(void *table);

#endif
