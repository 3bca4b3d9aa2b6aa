/* The type `Stream`. */

#ifndef BPE_BINDING_STREAM_H
#define BPE_BINDING_STREAM_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyType_Spec stream_spec;

#endif
