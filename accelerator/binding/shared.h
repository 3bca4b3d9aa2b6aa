/* What two strings share. */

#ifndef BPE_BINDING_SHARED_H
#define BPE_BINDING_SHARED_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef shared_methods[];

#endif
