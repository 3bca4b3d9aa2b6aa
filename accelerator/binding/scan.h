/* Choosing a scanner, and the module's functions that show what scanners do. */

#ifndef BPE_BINDING_SCAN_H
#define BPE_BINDING_SCAN_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "scan/scan.h"

/* The scanner of a pattern, or NULL and a ValueError. */
scanner *scanner_named(const char *name, bool portable);

/* Add PATTERNS, the names of all patterns that have one.  Returns 0, or -1 and an exception. */
int add_patterns(PyObject *module);

extern PyMethodDef scan_methods[];

#endif
