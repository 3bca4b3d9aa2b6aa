/* Choosing a scanner, and the module's functions that show what scanners do. */

#ifndef BPE_BINDING_SCAN_H
#define BPE_BINDING_SCAN_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "scan/scan.h"

/* Make a cutter for a pattern: the name of a built-in one, an automaton, or None for no cutter.  It
 * is valid as long as the pattern lives.  Returns 0, or -1 and an exception. */
int cutter_of(PyObject *pattern, bool portable, struct cutter *cutter);

/* Add PATTERNS, the names of all patterns that have one.  Returns 0, or -1 and an exception. */
int add_patterns(PyObject *module);

extern PyMethodDef scan_methods[];

#endif
