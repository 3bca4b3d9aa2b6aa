/* Python's side of whole words: the type `WordFinder`. */

#ifndef BPE_BINDING_WORDS_H
#define BPE_BINDING_WORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyType_Spec word_finder_spec;

#endif
