/* The type `Encoder`, and what the files that implement its methods share. */

#ifndef BPE_BINDING_ENCODER_H
#define BPE_BINDING_ENCODER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>

#include "encode/encode.h"
#include "encode/tokens.h"

enum {
    SPARE_WORKERS = 16,
    LONG_TEXT = 1 << 16, /* bytes; while so many are encoded, other threads may run */
};

typedef struct {
    PyObject_HEAD
    struct tokens tokens;
    struct vocabulary vocabulary;
    PyObject *pattern; /* what the cutter was made from, and may point into */
    struct cutter cutter;
    bool ascii_only; /* encode_plain leaves other text to the caller, */
    bool or_nfc;     /* except for text that NFC surely doesn't change */
    PyObject **ints; /* each id as an object, so that a list takes a reference for each */

    /* Workers that nobody uses now.  Who encodes takes one out, or makes one, and puts it back:
     * threads never share one, with or without the interpreter's lock. */
    _Atomic(struct worker *) spare[SPARE_WORKERS];
    _Atomic(struct spans *) spans; /* the same for the spans of offsets */
} Encoder;

extern PyType_Spec encoder_spec;

/* Other threads may change a list or a dict while it is read, where there is no interpreter's lock
 * to keep them from it.  Neither is read in steps between which Python code could run. */
#if PY_VERSION_HEX >= 0x030D0000
#define LOCKED(object, statement)                                                                  \
    do {                                                                                           \
        Py_BEGIN_CRITICAL_SECTION(object);                                                         \
        statement;                                                                                 \
        Py_END_CRITICAL_SECTION();                                                                 \
    } while (0)
#else
#define LOCKED(object, statement)                                                                  \
    do {                                                                                           \
        statement;                                                                                 \
    } while (0)
#endif

/* A worker that nobody else has; NULL if memory is short.  Neither function needs the
 * interpreter's lock. */
struct worker *take_worker(Encoder *self);
void put_back(Encoder *self, struct worker *worker);

/* The same as take_worker, with a MemoryError. */
struct worker *need_worker(Encoder *self);

/* Encode a string into worker->ids, or count its ids.  Returns 0, or -1 and an exception. */
int encode_into(Encoder *self, struct worker *worker, PyObject *string, bool keep);

/* Tell whether an object is a string that needs cutting and merging only.  Raises nothing. */
bool is_plain(const Encoder *self, PyObject *object);

/* Read an id.  Returns NO_TOKEN and an exception if it is none that fits.  Runs no Python code, so
 * that nobody changes what the id stands in. */
uint32_t read_id(PyObject *object);

/* Check that text need not come cut into pre-tokens.  Returns 0, or -1 and an exception. */
int check_scanner(const Encoder *self);

/* The items of an object that must be a list, as a tuple; NULL and an exception if it is none. */
PyObject *items_of_list(PyObject *object, const char *name);

/* A list of ids; a bytearray of them.  NULL and an exception if memory is short. */
PyObject *list_of(const Encoder *self, const uint32_t *ids, size_t n);
PyObject *buffer_of(const Encoder *self, const uint32_t *ids, size_t n);

/* -- Methods in other files ------------------------------------------------------------------ */

extern const char encode_batch_doc[], encode_batch_to_buffers_doc[];
PyObject *encoder_encode_batch(Encoder *self, PyObject *args);
PyObject *encoder_encode_batch_to_buffers(Encoder *self, PyObject *args);

extern const char encode_around_doc[];
PyObject *encoder_encode_around(Encoder *self, PyObject *const *args, Py_ssize_t n_args);

extern const char decode_doc[], decode_to_str_doc[];
PyObject *encoder_decode(Encoder *self, PyObject *ids);
PyObject *encoder_decode_to_str(Encoder *self, PyObject *args);

extern const char offsets_doc[], encode_to_offsets_doc[];
PyObject *encoder_offsets(Encoder *self, PyObject *args);
PyObject *encoder_encode_to_offsets(Encoder *self, PyObject *text);
void free_spans(struct spans *spans);

#endif
