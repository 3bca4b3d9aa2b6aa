/* Respelling text for models that merge characters. */

#ifndef BPE_BINDING_RESPELL_H
#define BPE_BINDING_RESPELL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef respell_methods[];

#endif
