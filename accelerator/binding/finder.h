/* The type `Finder`. */

#ifndef BPE_BINDING_FINDER_H
#define BPE_BINDING_FINDER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "binding/encoder.h"
#include "find/find.h"

typedef struct {
    PyObject_HEAD
    struct finder finder;
    uint32_t *ids; /* of each string; NO_TOKEN if finding it isn't enough */
} Finder;

extern PyType_Spec finder_spec;

/* The strings of a Finder; NULL, without an exception, if the object isn't a Finder. */
const struct finder *finder_of(PyObject *object);

/* Search part of a string that check_string has checked.  Returns 0, or -1 and an exception. */
int find_in(const Finder *self, PyObject *string, size_t start, size_t end,
            struct matches *matches);

/* Whether each string found maps to an id, without further conditions. */
bool have_ids(const Encoder *encoder, const Finder *self, const struct matches *matches);

#endif
