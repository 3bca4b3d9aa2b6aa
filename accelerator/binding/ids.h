/* Ids that Python passes, read for decoding. */

#ifndef BPE_BINDING_IDS_H
#define BPE_BINDING_IDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "encode/tokens.h"

/* Read a plain int of up to 30 bits.  Returns NO_TOKEN for anything else. */
static inline uint32_t small_int(PyObject *object)
{
    if (!PyLong_CheckExact(object))
        return NO_TOKEN;
#if PY_VERSION_HEX >= 0x030C0000
    if (!PyUnstable_Long_IsCompact((PyLongObject *)object))
        return NO_TOKEN;
    Py_ssize_t value = PyUnstable_Long_CompactValue((PyLongObject *)object);
    return value < 0 ? NO_TOKEN : (uint32_t)value;
#else
    Py_ssize_t digits = Py_SIZE(object);
    if (digits != 0 && digits != 1)
        return NO_TOKEN;
    return digits ? ((PyLongObject *)object)->ob_digit[0] : 0;
#endif
}

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

/* Get a buffer.  Returns 0, or -1 and an exception: a TypeError if the object has no buffer. */
int get_buffer(PyObject *object, Py_buffer *view);

/* Read a row of a two-dimensional buffer, as read_ids does. */
int read_ids_of_row(const struct tokens *tokens, const Py_buffer *view, Py_ssize_t row,
                    struct ids *ids);

#endif
