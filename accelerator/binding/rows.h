/* Python's side of tensors. */

#ifndef BPE_BINDING_ROWS_H
#define BPE_BINDING_ROWS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef rows_methods[];

#endif
