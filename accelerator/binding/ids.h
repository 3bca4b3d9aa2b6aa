/* Ids that Python gives, read for decoding. */

#ifndef BPE_BINDING_IDS_H
#define BPE_BINDING_IDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "encode/tokens.h"

enum { IDS_ON_STACK = 1024 };

/* Ids that all have tokens. */
struct ids {
    uint32_t *ids;
    Py_ssize_t n;
    size_t length; /* of all their tokens, in bytes */
    uint32_t on_stack[IDS_ON_STACK];
};

/* Read the ids of a list, a tuple, or a contiguous buffer of integers of one dimension.  Returns 0, or
 * -1 and an exception: a KeyError if one has no token, else a TypeError.  Release them after 0. */
int read_ids(const struct tokens *tokens, PyObject *object, struct ids *ids);
void release_ids(struct ids *ids);

#endif
