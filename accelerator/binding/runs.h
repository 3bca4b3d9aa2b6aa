/* Python's side of runs: the types `PairCounter` and `RunCounter`. */

#ifndef BPE_BINDING_RUNS_H
#define BPE_BINDING_RUNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "train/runs.h"

extern PyType_Spec pair_counter_spec, run_counter_spec;

/* The runs of a RunCounter; NULL if the object is not one. */
const struct byte_map *runs_of(PyObject *object);

#endif
