/* Choosing a scanner, and the module's functions that show what scanners do. */

#ifndef BPE_PYTHON_SCAN_H
#define BPE_PYTHON_SCAN_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "scan.h"

/* Whether the processor has what the scanners in scan_avx2.c were compiled for. */
bool has_avx2(void);

/* The scanner of a pattern, or NULL and a ValueError. */
scanner *scanner_named(const char *name, bool portable);

/* Add PATTERNS, the names of all patterns that have one.  Returns 0, or -1 and an exception. */
int add_patterns(PyObject *module);

extern PyMethodDef scan_methods[];

#endif
