/* The function `merges_from_ranks`, and what merges are made of. */

#ifndef BPE_BINDING_RANKS_H
#define BPE_BINDING_RANKS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef ranks_methods[];

/* A tuple of two ints, or two bytes.  It can be in no cycle, so that the garbage collector need not know it; it
 * would find that out by itself, and be busy with it over and over again. */
PyObject *pair_of(PyObject *left, PyObject *right);

#endif
