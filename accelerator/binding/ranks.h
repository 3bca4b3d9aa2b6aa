/* The function `merges_from_ranks`. */

#ifndef BPE_BINDING_RANKS_H
#define BPE_BINDING_RANKS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef ranks_methods[];

#endif
