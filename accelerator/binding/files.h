/* Python's side of vocabulary files. */

#ifndef BPE_BINDING_FILES_H
#define BPE_BINDING_FILES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef files_methods[];

#endif
