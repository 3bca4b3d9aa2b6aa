/* The function `merges_from_ranks`, and what merges are made of. */

#ifndef BPE_BINDING_RANKS_H
#define BPE_BINDING_RANKS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef ranks_methods[];

/* A tuple of two ints, or two bytes.  It can't be part of a cycle, so the garbage collector need
 * not track it; otherwise the collector would look at each of them again and again. */
PyObject *pair_of(PyObject *left, PyObject *right);

#endif
