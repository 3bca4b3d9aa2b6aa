/* Many texts at once, on several threads.
 *
 * The texts are cut into shares.  Each thread takes the next share, encodes its texts with a worker
 * of its own, and puts the result on a stack.  None of this needs the interpreter's lock.  The
 * caller's thread takes part; in between it turns into Python objects what is on the stack.  Only
 * that needs the lock, and the other threads go on meanwhile. */

#include "binding/encoder.h"

#include <stdlib.h>

#include "base/threads.h"
#include "binding/text.h"

enum {
    SHARE_CHARACTERS = 1 << 14, /* a share has so many, and what its last text has above */

    /* Starting a thread takes about 20 microseconds.  With fewer characters for each, two threads
     * are up to 8 % slower than one where other processes keep all processors busy
     * (benchmarks/bench_threads.py --batch 0.05 0.1 0.2). */
    THREAD_CHARACTERS = 1 << 17,
};

/* Some of the texts, and what became of them. */
struct share {
    Py_ssize_t first, end;
    uint32_t *ids;       /* of all its texts, one behind the other; NULL if not encoded */
    Py_ssize_t refused;  /* the text that holds a surrogate, or -1 */
    struct share *below; /* on the stack */
};

struct batch {
    Encoder *encoder;
    PyObject *texts; /* a tuple of strings, which nobody else changes */
    maker *make;
    size_t most;      /* ids of a text */
    size_t *counts;   /* of ids, by text */
    PyObject **made;  /* by text; references of our own */
    struct share *shares;
    size_t n_shares, n_characters;

    atomic_size_t next; /* share to be taken */
    _Atomic(struct share *) finished; /* the top of the stack */
    atomic_bool stop;      /* take no more shares */
    atomic_bool no_memory;
    bool raised;           /* there is an exception already */
    PyThreadState *caller; /* its state, while it does not hold the lock */
};

/* -- Without the interpreter's lock ---------------------------------------------------------- */

/* Encode a text, and forget the ids it has beyond the most.  Returns 0, or -1 if memory is short. */
static int encode_first(const struct batch *batch, struct worker *worker, const uint8_t *text,
                        size_t size)
{
    const Encoder *encoder = batch->encoder;
    size_t before = worker->n_ids;
    if (batch->most == SIZE_MAX)
        return encode_text(&encoder->vocabulary, worker, encoder->cutter, text, size, true);
    if (batch->most &&
        encode_until(&encoder->vocabulary, worker, encoder->cutter, text, size,
                     before + batch->most - 1) < 0)
        return -1;
    if (worker->n_ids - before > batch->most)
        worker->n_ids = before + batch->most;
    return 0;
}

/* Encode the texts of a share into worker->ids, as far as they can be. */
static bool encode_texts(struct batch *batch, struct worker *worker, struct share *share)
{
    worker->n_ids = 0;
    for (Py_ssize_t i = share->first; i < share->end; i++) {
        size_t size, before = worker->n_ids;
        const uint8_t *text = checked_utf8(worker, PyTuple_GET_ITEM(batch->texts, i), &size);
        if (!text && size) {
            share->refused = i;
            return false;
        }
        if (!text || encode_first(batch, worker, text, size) < 0) {
            atomic_store(&batch->no_memory, true);
            return false;
        }
        batch->counts[i] = worker->n_ids - before;
    }
    return true;
}

static void encode_share(struct batch *batch, struct worker *worker, struct share *share)
{
    if (encode_texts(batch, worker, share)) {
        share->ids = malloc((worker->n_ids + 1) * sizeof *share->ids);
        if (!share->ids)
            atomic_store(&batch->no_memory, true);
        else if (worker->n_ids) /* if there are none, there may be no memory they would be in */
            memcpy(share->ids, worker->ids, worker->n_ids * sizeof *share->ids);
    }
    if (!share->ids)
        atomic_store(&batch->stop, true);
    share->below = atomic_load(&batch->finished);
    while (!atomic_compare_exchange_weak(&batch->finished, &share->below, share))
        ;
}

/* -- With the lock --------------------------------------------------------------------------- */

/* Make the objects of one share. */
static void make_share(struct batch *batch, struct share *share)
{
    const uint32_t *ids = share->ids;
    for (Py_ssize_t i = share->first; ids && !batch->raised && i < share->end; i++) {
        batch->made[i] = batch->make(batch->encoder, ids, batch->counts[i]);
        batch->raised = !batch->made[i];
        ids += batch->counts[i];
    }
    free(share->ids);
    share->ids = NULL;
}

/* Make the objects of all shares on the stack. */
static void make_finished(struct batch *batch)
{
    struct share *share = atomic_exchange(&batch->finished, NULL);
    for (; share; share = share->below)
        make_share(batch, share);
    if (!batch->raised && PyErr_CheckSignals() < 0)
        batch->raised = true;
    if (batch->raised)
        atomic_store(&batch->stop, true);
}

/* -- Both ------------------------------------------------------------------------------------ */

/* What each thread does; the one with index 0 is the caller's. */
static void work(void *context, unsigned index)
{
    struct batch *batch = context;
    struct worker *worker = take_worker(batch->encoder);
    if (!worker) {
        atomic_store(&batch->no_memory, true);
        atomic_store(&batch->stop, true);
        return;
    }
    while (!atomic_load(&batch->stop)) {
        size_t next = atomic_fetch_add(&batch->next, 1);
        if (next >= batch->n_shares)
            break;
        encode_share(batch, worker, &batch->shares[next]);
        if (index == 0) {
            PyEval_RestoreThread(batch->caller);
            make_finished(batch);
            batch->caller = PyEval_SaveThread();
        }
    }
    put_back(batch->encoder, worker);
}

/* Check that all texts are strings, and cut them into shares. */
static int share_texts(struct batch *batch)
{
    size_t characters = SHARE_CHARACTERS;
    struct share *share = NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(batch->texts); i++) {
        PyObject *string = PyTuple_GET_ITEM(batch->texts, i);
        if (check_string(string) < 0)
            return -1;
        if (characters >= SHARE_CHARACTERS) {
            share = &batch->shares[batch->n_shares++];
            *share = (struct share){.first = i, .refused = -1};
            characters = 0;
        }
        size_t length = (size_t)PyUnicode_GET_LENGTH(string) + 1;
        characters += length;
        batch->n_characters += length;
        share->end = i + 1;
    }
    return 0;
}

/* Raise what went wrong, if anything did.  Shares are taken in order, and each that was taken is
 * gone through: the first text that is refused does not depend on the threads. */
static int raise_failure(const struct batch *batch)
{
    if (batch->raised)
        return -1;
    if (batch->no_memory) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < batch->n_shares; i++)
        if (batch->shares[i].refused >= 0) {
            raise_surrogate(PyTuple_GET_ITEM(batch->texts, batch->shares[i].refused));
            return -1;
        }
    return 0;
}

/* Encode all texts; returns a list of what was made of them.  Each thread has at least so many
 * characters. */
static PyObject *run_batch(struct batch *batch, unsigned threads, size_t least)
{
    if (share_texts(batch) < 0)
        return NULL;
    size_t most = least && batch->n_characters / least < batch->n_shares
                      ? batch->n_characters / least
                      : batch->n_shares;
    if (threads > most)
        threads = (unsigned)most;
    batch->caller = PyEval_SaveThread();
    run_in_threads(threads, work, batch);
    PyEval_RestoreThread(batch->caller);
    make_finished(batch);
    Py_ssize_t n = PyTuple_GET_SIZE(batch->texts);
    PyObject *list = raise_failure(batch) < 0 ? NULL : PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        PyList_SET_ITEM(list, i, batch->made[i]);
        batch->made[i] = NULL;
    }
    return list;
}

static void release_batch(struct batch *batch)
{
    for (Py_ssize_t i = 0; batch->made && i < PyTuple_GET_SIZE(batch->texts); i++)
        Py_XDECREF(batch->made[i]);
    PyMem_Free(batch->counts);
    PyMem_Free(batch->made);
    PyMem_Free(batch->shares);
    Py_XDECREF(batch->texts);
    PyMem_Free(batch);
}

/* A batch with room for its results; NULL and an exception if there can be none.
 *
 * NOTE: it is not on the stack.  If the interpreter ends while the caller's thread waits for the
 * lock, that thread ends there and then, and its stack is gone; the others go on for a while. */
static struct batch *new_batch(Encoder *self, PyObject *texts, maker *make)
{
    struct batch *batch = PyMem_Calloc(1, sizeof *batch);
    if (!batch) {
        PyErr_NoMemory();
        return NULL;
    }
    batch->encoder = self;
    batch->make = make;
    batch->texts = items_of_list(texts, "texts");
    if (batch->texts) {
        size_t n = (size_t)PyTuple_GET_SIZE(batch->texts);
        batch->counts = PyMem_Calloc(n, sizeof *batch->counts);
        batch->made = PyMem_Calloc(n, sizeof *batch->made);
        batch->shares = PyMem_Calloc(n, sizeof *batch->shares);
        if (batch->counts && batch->made && batch->shares)
            return batch;
        PyErr_NoMemory();
    }
    release_batch(batch);
    return NULL;
}

static PyObject *encode_batch(Encoder *self, PyObject *args, maker *make)
{
    PyObject *texts, *most = NULL;
    int threads, least = THREAD_CHARACTERS;
    if (!PyArg_ParseTuple(args, "Oi|iO!", &texts, &threads, &least, &PyLong_Type, &most))
        return NULL;
    Py_ssize_t room = most ? PyNumber_AsSsize_t(most, NULL) : -1; /* cut off at both ends */
    if (threads < 1 || least < 0) {
        PyErr_Format(PyExc_ValueError, "%s must be at least %d, got %d",
                     threads < 1 ? "threads" : "least", threads < 1, threads < 1 ? threads : least);
        return NULL;
    }
    if (check_scanner(self) < 0)
        return NULL;
    struct batch *batch = new_batch(self, texts, make);
    if (!batch)
        return NULL;
    batch->most = room < 0 ? SIZE_MAX : (size_t)room;
    PyObject *list = run_batch(batch, (unsigned)threads, (size_t)least);
    release_batch(batch);
    return list;
}

/* -- Methods --------------------------------------------------------------------------------- */

const char encode_batch_doc[] =
    PyDoc_STR("encode_batch(texts, threads, least=131072, most=-1, /)\n--\n\n"
              "Return the ids of each text of a list, encoded on up to so many threads.\n\n"
              "Only as many are used as have `least` characters each.  Of each text, the first\n"
              "`most` ids are returned; -1 is for all.");

PyObject *encoder_encode_batch(Encoder *self, PyObject *args)
{
    return encode_batch(self, args, list_of);
}

const char encode_batch_to_buffers_doc[] =
    PyDoc_STR("encode_batch_to_buffers(texts, threads, least=131072, most=-1, /)\n--\n\n"
              "Do what encode_batch does; a bytearray for each text, as of encode_to_buffer.");

PyObject *encoder_encode_batch_to_buffers(Encoder *self, PyObject *args)
{
    return encode_batch(self, args, buffer_of);
}

/* A list of ids, and a record of them that nobody can change. */
static PyObject *recorded(const Encoder *encoder, const uint32_t *ids, size_t n)
{
    PyObject *list = list_of(encoder, ids, n);
    PyObject *record = list ? PyBytes_FromStringAndSize((const char *)ids,
                                                        (Py_ssize_t)(n * sizeof *ids))
                            : NULL;
    PyObject *both = record ? PyTuple_Pack(2, list, record) : NULL;
    Py_XDECREF(list);
    Py_XDECREF(record);
    return both;
}

const char encode_batch_recorded_doc[] =
    PyDoc_STR("encode_batch_recorded(texts, threads, least=131072, most=-1, /)\n--\n\n"
              "Do what encode_batch does; for each text its ids and a record of them, for offsets.");

PyObject *encoder_encode_batch_recorded(Encoder *self, PyObject *args)
{
    return encode_batch(self, args, recorded);
}
