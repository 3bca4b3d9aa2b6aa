/* Python's side of learning where Python chooses the pairs: the type `PairLearner`. */

#ifndef BPE_BINDING_PAIRS_H
#define BPE_BINDING_PAIRS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyType_Spec pair_learner_spec;

#endif
