/* Python's side of training. */

#ifndef BPE_BINDING_TRAINING_H
#define BPE_BINDING_TRAINING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add the type PretokenCounter and the function learn_merges.  Returns 0, or -1 and an
 * exception. */
int add_training(PyObject *module);

#endif
