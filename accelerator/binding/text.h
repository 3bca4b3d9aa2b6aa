/* Python's strings as UTF-8, and back. */

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

/* Whether NFC certainly leaves a string as it is; check_string must have checked it. */
bool is_surely_nfc(PyObject *string);

/* Raise the UnicodeEncodeError that Python raises for a string with surrogates. */
void raise_surrogate(PyObject *string);

/* The UTF-8 of a string that check_string has checked: its own bytes, or a copy in the worker.
 * NULL if it contains a surrogate, or if out of memory (then *size is 0).  Doesn't need the
 * interpreter's lock, and raises nothing. */
const uint8_t *checked_utf8(struct worker *worker, PyObject *string, size_t *size);

/* The same for the characters from `start` to `end`, which are in the string. */
const uint8_t *checked_utf8_between(struct worker *worker, PyObject *string, size_t start,
                                    size_t end, size_t *size);

/* The same after a check, with an exception if it is not a string, contains a surrogate, or if out
 * of memory. */
const uint8_t *utf8_of(struct worker *worker, PyObject *string, size_t *size);

enum { UTF8_SLACK = 16 };

/* Whether all bytes are at most 0x7F. */
bool is_ascii(const uint8_t *bytes, size_t size);

/* The string of some UTF-8; `errors` is as for PyUnicode_DecodeUTF8.  NULL and an exception if that
 * fails.  UTF8_SLACK bytes after the text are overwritten. */
PyObject *str_of_utf8(uint8_t *text, size_t size, const char *errors);

#endif
