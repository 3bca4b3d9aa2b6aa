/* The type `Encoder`, and declarations shared by the files that implement its methods. */

#ifndef BPE_BINDING_ENCODER_H
#define BPE_BINDING_ENCODER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>

#include "encode/encode.h"
#include "encode/image.h"
#include "encode/tokens.h"

enum {
    SPARE_WORKERS = 16,
    LONG_TEXT = 1 << 16, /* bytes; from this length, other threads may run during encoding */
};

typedef struct {
    PyObject_HEAD
    /* These never change.  If `owner` is not NULL, the memory in them belongs to it. */
    struct tokens tokens;
    struct vocabulary vocabulary;
    struct lists lists;
    PyObject *owner;
    PyObject *pattern; /* the cutter was made from it, and may point into it */
    struct cutter cutter;
    struct superwords *superwords; /* always its own; NULL without superwords */
    bool ascii_only; /* encode_plain leaves other text to the caller, */
    bool or_nfc;     /* except for text that NFC surely doesn't change */
    /* Each id as an object, made when it is first needed, so that a list takes a reference to it.
     * An entry never changes again, so any thread may read it. */
    _Atomic(PyObject *) *ints;

    /* Workers that nobody uses now.  A thread that encodes takes one out, or makes one, and puts it
     * back: threads never share one, with or without the interpreter's lock. */
    _Atomic(struct worker *) spare[SPARE_WORKERS];
    _Atomic(struct spans *) spans; /* the same for the spans of offsets, */
    _Atomic(uint8_t *) scratch;    /* and for room to write tokens */
} Encoder;

extern PyType_Spec encoder_spec;

/* Without the interpreter's lock, other threads can change a list or a dict while it is read.  No
 * Python code runs between the steps that read them. */
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

/* Whether an object is a string that only needs cutting and merging.  Raises nothing. */
bool is_plain(const Encoder *self, PyObject *object);

/* The same, for text that NFC doesn't change, if that is the normalizer. */
bool is_plain_but_for_nfc(const Encoder *self, PyObject *object);

/* Read an id.  Returns NO_TOKEN and an exception if it is not a valid id.  Runs no Python code,
 * which could change the id's container. */
uint32_t read_id(PyObject *object);

/* Make the object of an id.  A new reference, or NULL and an exception. */
PyObject *make_int(const Encoder *self, uint32_t id);

/* The object of an id below n_ids.  A new reference, or NULL and an exception. */
static inline PyObject *int_of_id(const Encoder *self, uint32_t id)
{
    PyObject *number = atomic_load_explicit(&self->ints[id], memory_order_acquire);
    return number ? Py_NewRef(number) : make_int(self, id);
}

/* Check that text need not come cut into pre-tokens.  Returns 0, or -1 and an exception. */
int check_scanner(const Encoder *self);

/* A tuple of a list's items, as PyList_AsTuple makes it. */
PyObject *tuple_of_list(PyObject *list);

/* The items of a list, as a tuple; NULL and an exception if the object isn't a list. */
PyObject *items_of_list(PyObject *object, const char *name);

/* Write up to CHUNK pre-tokens of a tuple, one after the other, to worker->text, and the ends of
 * them.  Returns how many items of the tuple are done, or -1 and an exception; skips empty ones. */
Py_ssize_t gather(struct worker *worker, PyObject *items, Py_ssize_t first, size_t *count);

/* Makes an object of the ids of a text.  NULL and an exception if memory is short. */
typedef PyObject *maker(const Encoder *self, const uint32_t *ids, size_t n);
maker list_of, buffer_of; /* a list; a bytearray */

/* Make the objects of ids.  Returns how many; if fewer than all, an exception is set. */
size_t fill_ints(const Encoder *self, const uint32_t *ids, size_t n, PyObject **items);

/* Release the batches that threads have left after they were returned.  May run Python code. */
void release_left_behind(void);

/* Make an encoder that knows nothing yet. */
Encoder *new_encoder(PyTypeObject *type);

/* Make room for the objects of its ids.  Returns 0, or -1 and an exception. */
int open_ints(Encoder *self);

/* Whether an object is an encoder. */
bool is_encoder(PyObject *object);

enum {
    /* Of a thread, at least.  Starting one takes about 20 microseconds.  With fewer for each, two
     * threads are up to 8% slower than one where other processes keep all processors busy
     * (benchmarks/bench_threads.py --batch 0.05 0.1 0.2). */
    THREAD_CHARACTERS = 1 << 17,
};

/* -- Methods in other files ------------------------------------------------------------------ */

extern const char encode_batch_doc[], encode_batch_recorded_doc[], encode_batch_to_buffers_doc[];
PyObject *encoder_encode_batch(Encoder *self, PyObject *args);
PyObject *encoder_encode_batch_recorded(Encoder *self, PyObject *args);
PyObject *encoder_encode_batch_to_buffers(Encoder *self, PyObject *args);

extern const char encode_joined_doc[], encode_joined_to_buffer_doc[];
PyObject *encoder_encode_joined(Encoder *self, PyObject *args);
PyObject *encoder_encode_joined_to_buffer(Encoder *self, PyObject *args);

extern const char encode_around_doc[], encode_around_to_buffer_doc[], encode_segments_doc[];
extern const char count_around_doc[];
PyObject *encoder_encode_around(Encoder *self, PyObject *const *args, Py_ssize_t n_args);
PyObject *encoder_count_around(Encoder *self, PyObject *const *args, Py_ssize_t n_args);
PyObject *encoder_encode_around_to_buffer(Encoder *self, PyObject *const *args, Py_ssize_t n_args);
PyObject *encoder_encode_segments(Encoder *self, PyObject *const *args, Py_ssize_t n_args);

extern const char encode_dropping_doc[];
PyObject *encoder_encode_dropping(Encoder *self, PyObject *args);

extern const char begin_doc[];
PyObject *encoder_begin(Encoder *self, PyObject *const *args, Py_ssize_t n_args);

extern const char decode_doc[], decode_to_str_doc[], without_doc[], decode_rows_doc[];
PyObject *encoder_decode(Encoder *self, PyObject *ids);
PyObject *encoder_decode_to_str(Encoder *self, PyObject *const *args, Py_ssize_t n_args);
PyObject *encoder_without(Encoder *self, PyObject *args);
PyObject *encoder_decode_rows(Encoder *self, PyObject *args);

extern const char offsets_doc[];
PyObject *encoder_offsets(Encoder *self, PyObject *args);
void free_spans(struct spans *spans);

extern const char token_doc[], id_of_doc[], listed_doc[], merges_doc[];
PyObject *encoder_token(Encoder *self, PyObject *id);
PyObject *encoder_id_of(Encoder *self, PyObject *token);
PyObject *encoder_listed(Encoder *self, PyObject *with_added);
PyObject *encoder_merges(Encoder *self, PyObject *args);

extern const char image_doc[], from_image_doc[];
PyObject *encoder_image(Encoder *self, PyObject *rest);
PyObject *encoder_from_image(PyTypeObject *type, PyObject *data);

#endif
