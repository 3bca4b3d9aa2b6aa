/* Cutting text by an automaton: for split patterns that no scanner was written for.
 *
 * bpe_tokenizer_tools/patterns/automaton.py makes the tables from a pattern, and explains them.
 * This code follows them, character by character. */

#ifndef BPE_SCAN_AUTOMATON_H
#define BPE_SCAN_AUTOMATON_H

#include "scan/scan.h"

/* The tables of an automaton. */
struct automaton_tables {
    const uint16_t *index; /* the block of each 256 code points: AUTOMATON_INDEX of them */
    const uint8_t *blocks; /* 256 classes to a block */
    const uint32_t *table; /* a row for each state: for each column, next state << 1 | ended */
    size_t n_blocks, n_states;
    size_t n_classes;           /* two columns less: the text's end, and a newline that ends it */
    bool asks_for_last_newline; /* whether that newline has a column of its own */
};

enum {
    AUTOMATON_BLOCK = 256,
    AUTOMATON_INDEX = 0x110000 / AUTOMATON_BLOCK,
    AUTOMATON_STATES = 1 << 13, /* the largest number of states */
};

/* Copy and check tables.  Returns NULL if memory is short, or, with *valid false, if a number in
 * them points nowhere. */
struct automaton *automaton_new(const struct automaton_tables *tables, bool *valid);
void automaton_free(struct automaton *automaton);

#endif
