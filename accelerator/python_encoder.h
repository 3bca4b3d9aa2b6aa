/* The type `Encoder`. */

#ifndef BPE_PYTHON_ENCODER_H
#define BPE_PYTHON_ENCODER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyType_Spec encoder_spec;

#endif
