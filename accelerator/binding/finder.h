/* The type `Finder`. */

#ifndef BPE_BINDING_FINDER_H
#define BPE_BINDING_FINDER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyType_Spec finder_spec;

#endif
