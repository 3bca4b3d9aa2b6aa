/* The type `Shown`. */

#ifndef BPE_BINDING_SHOWN_H
#define BPE_BINDING_SHOWN_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add the type to the module.  Returns 0, or -1 and an exception. */
int add_shown(PyObject *module);

#endif
