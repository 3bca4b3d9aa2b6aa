/* Python's strings as UTF-8. */

#ifndef BPE_BINDING_TEXT_H
#define BPE_BINDING_TEXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "encode/encode.h"

/* Get a secret number, the one that Python's own hashes depend on: the author of a text or a
 * vocabulary can't know it.  Returns 0, or -1 and an exception. */
int get_seed(uint64_t *seed);

/* Check that an object is a string, ready to be read.  Returns 0, or -1 and an exception. */
int check_string(PyObject *object);

/* Write a string at `out`.  Returns the end; NULL, without an exception, if there is a surrogate.
 * There is room for 2 bytes a character of Latin-1, 3 of UCS-2, 4 of UCS-4, and for 4 more. */
uint8_t *write_utf8(PyObject *string, uint8_t *out, bool use_avx2);

/* Tell whether NFC surely leaves a string as it is that check_string has seen. */
bool is_surely_nfc(PyObject *string);

/* Raise the UnicodeEncodeError that Python raises for a string with surrogates. */
void raise_surrogate(PyObject *string);

/* The UTF-8 of a string that check_string has seen: its own bytes, or a copy in the worker.  NULL
 * if it holds a surrogate, and if memory is short; then *size is 0.  Needs no interpreter's lock,
 * and raises nothing. */
const uint8_t *checked_utf8(struct worker *worker, PyObject *string, size_t *size);

/* The same for the characters from `start` to `end`, which are in the string. */
const uint8_t *checked_utf8_between(struct worker *worker, PyObject *string, size_t start,
                                    size_t end, size_t *size);

/* The same with a check before it, and an exception if it is no string, holds a surrogate, or
 * memory is short. */
const uint8_t *utf8_of(struct worker *worker, PyObject *string, size_t *size);

#endif
