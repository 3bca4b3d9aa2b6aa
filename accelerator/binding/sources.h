/* Where the characters of a text come from that was made from another one. */

#ifndef BPE_BINDING_SOURCES_H
#define BPE_BINDING_SOURCES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* Neighboring characters.  In a copied run, each comes from right after the one before; in other
 * runs, all come from the same place. */
struct source_run {
    int32_t length;     /* in characters */
    int32_t start, end; /* the span of the first */
    int32_t copied;     /* 1 or 0 */
};

/* Whether these are the runs of a text of n characters. */
bool sources_fit(const struct source_run *runs, Py_ssize_t n_runs, Py_ssize_t n);

/* Get the runs of a text of n characters from an array of "i", and check them.  Whatever writes into
 * the array later can change them.  Returns 0, or -1 and an exception. */
int get_sources(PyObject *object, Py_ssize_t n, Py_buffer *view);

#endif
