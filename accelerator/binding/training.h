/* Python's side of training: the type `PretokenCounter`, and learning. */

#ifndef BPE_BINDING_TRAINING_H
#define BPE_BINDING_TRAINING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "train/learn.h"

/* Add the type and the functions to the module.  Returns 0, or -1 and an exception. */
int add_training(PyObject *module);

/* A learner of the words in a dict of bytes and counts; NULL and an exception if that fails. */
struct learner *learner_of(PyObject *counts, PyObject *alphabet);

#endif
