/* Many texts at once, on several threads.
 *
 * The texts are divided into shares.  Each thread takes the next share, and encodes its texts with
 * its own worker.  This doesn't need the interpreter's lock.  The caller's thread takes part; in
 * between, it turns finished shares into Python objects.  Only that needs the lock, and the other
 * threads continue in the meantime.
 *
 * The caller never waits for another thread, which may have to wait for a processor itself.  When
 * all shares are taken, it encodes the unfinished ones itself, too, and the first result is used.
 * So a thread may come back to a batch that was returned long ago.  The last one to leave
 * a batch leaves it behind, for a later call to release: that needs the interpreter's lock. */

#include "binding/encoder.h"

#include <stdlib.h>

#include "base/threads.h"
#include "binding/text.h"

enum {
    SHARE_CHARACTERS = 1 << 14, /* of a share, whose last text may go past this */
    PATIENCE = 10000, /* looks at whether other threads have left: some microseconds */
};

/* The results of a share's texts. */
struct outcome {
    uint32_t *ids; /* of all its texts, one after the other; NULL if one was refused */
    size_t n_ids;
    Py_ssize_t refused; /* the text that contains a surrogate, or -1 */
    size_t counts[];    /* of ids, by text */
};

/* Some of the texts. */
struct share {
    Py_ssize_t first, end;
    _Atomic(struct outcome *) outcome; /* of the thread that was done first; NULL until then */
    atomic_bool done;                  /* the same, for those that are still at it */
};

struct batch {
    Encoder *encoder;
    PyObject *texts; /* a tuple of strings, which nobody else changes */
    maker *make;
    size_t most;      /* ids of a text */
    PyObject **made;  /* by text; references of our own */
    struct share *shares;
    size_t n_shares, n_characters;
    size_t n_made; /* shares with their objects */

    atomic_size_t next; /* share to be taken */
    atomic_bool stop;      /* take no more shares */
    atomic_bool no_memory;
    bool raised;           /* an exception is set */
    PyThreadState *caller; /* its state, while it does not hold the lock */

    atomic_size_t users;  /* the caller, and each thread that entered and has not left */
    int64_t interpreter;  /* that the objects belong to */
    struct batch *behind; /* the next in the list of those left behind */
};

static _Atomic(struct batch *) left_behind; /* by their last users */

/* -- Without the interpreter's lock ---------------------------------------------------------- */

static void free_outcome(struct outcome *outcome)
{
    if (outcome)
        free(outcome->ids);
    free(outcome);
}

/* Encode a text, and forget the ids it has beyond the most.  Returns 0; 1 if another thread has done
 * it; or -1 if memory is short. */
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

/* Encode the texts of a share into worker->ids, as far as they can be.  Returns as encode_first. */
static int encode_texts(const struct batch *batch, struct worker *worker, struct share *share,
                        struct outcome *outcome)
{
    worker->n_ids = 0;
    for (Py_ssize_t i = share->first; i < share->end; i++) {
        size_t size, before = worker->n_ids;
        const uint8_t *text = checked_utf8(worker, PyTuple_GET_ITEM(batch->texts, i), &size);
        if (!text && size) {
            outcome->refused = i;
            return 0;
        }
        int status = text ? encode_first(batch, worker, text, size) : -1;
        if (status)
            return status;
        outcome->counts[i - share->first] = worker->n_ids - before;
    }
    outcome->ids = malloc((worker->n_ids + 1) * sizeof *outcome->ids);
    if (!outcome->ids)
        return -1;
    outcome->n_ids = worker->n_ids;
    if (worker->n_ids) /* without ids, there may be no array of ids either */
        memcpy(outcome->ids, worker->ids, worker->n_ids * sizeof *outcome->ids);
    return 0;
}

static void encode_share(struct batch *batch, struct worker *worker, struct share *share)
{
    size_t n = (size_t)(share->end - share->first);
    struct outcome *outcome = malloc(sizeof *outcome + n * sizeof *outcome->counts), *none = NULL;
    int status = -1;
    if (outcome) {
        outcome->ids = NULL;
        outcome->n_ids = 0;
        outcome->refused = -1;
        worker->needless = &share->done;
        status = encode_texts(batch, worker, share, outcome);
        worker->needless = NULL;
    }
    if (status < 0)
        atomic_store(&batch->no_memory, true);
    if (status < 0 || (status == 0 && !outcome->ids))
        atomic_store(&batch->stop, true);
    if (status || !atomic_compare_exchange_strong(&share->outcome, &none, outcome)) {
        free_outcome(outcome);
        return;
    }
    atomic_store(&share->done, true);
}

/* Encode the shares that other threads have taken but not finished. */
static void finish_shares(struct batch *batch, struct worker *worker)
{
    size_t taken = atomic_load(&batch->next);
    for (size_t i = 0; i < taken && i < batch->n_shares && !atomic_load(&batch->no_memory); i++)
        if (!atomic_load(&batch->shares[i].outcome))
            encode_share(batch, worker, &batch->shares[i]);
}

static void enter_batch(void *context)
{
    struct batch *batch = context;
    atomic_fetch_add(&batch->users, 1);
}

/* NOTE: only a thread that holds the lock may release a batch: so not here. */
static void leave_batch(struct batch *batch)
{
    if (atomic_fetch_sub(&batch->users, 1) > 1)
        return;
    batch->behind = atomic_load(&left_behind);
    while (!atomic_compare_exchange_weak(&left_behind, &batch->behind, batch))
        ;
}

/* -- With the lock --------------------------------------------------------------------------- */

/* Make the objects of one share. */
static void make_share(struct batch *batch, struct share *share, struct outcome *outcome)
{
    if (!outcome->ids)
        return;
    const uint32_t *ids = outcome->ids;
    for (Py_ssize_t i = share->first; !batch->raised && i < share->end; i++) {
        size_t n = outcome->counts[i - share->first];
        batch->made[i] = batch->make(batch->encoder, ids, n);
        batch->raised = !batch->made[i];
        ids += n;
    }
    free(outcome->ids);
    outcome->ids = NULL;
}

/* Make the objects of the shares that are done, up to the first that is not. */
static void make_ready(struct batch *batch)
{
    for (; batch->n_made < batch->n_shares && !batch->raised; batch->n_made++) {
        struct share *share = &batch->shares[batch->n_made];
        struct outcome *outcome = atomic_load(&share->outcome);
        if (!outcome)
            break;
        make_share(batch, share, outcome);
    }
    if (!batch->raised && PyErr_CheckSignals() < 0)
        batch->raised = true;
    if (batch->raised)
        atomic_store(&batch->stop, true);
}

/* -- Both ------------------------------------------------------------------------------------ */

/* Encode shares until none is left. */
static void encode_shares(struct batch *batch, struct worker *worker, bool is_caller)
{
    while (!atomic_load(&batch->stop)) {
        size_t next = atomic_fetch_add(&batch->next, 1);
        if (next >= batch->n_shares)
            break;
        encode_share(batch, worker, &batch->shares[next]);
        if (is_caller) {
            PyEval_RestoreThread(batch->caller);
            make_ready(batch);
            batch->caller = PyEval_SaveThread();
        }
    }
    if (is_caller && !batch->raised)
        finish_shares(batch, worker);
}

/* What each thread does; the one with index 0 is the caller's. */
static void work(void *context, unsigned index)
{
    struct batch *batch = context;
    struct worker *worker = take_worker(batch->encoder);
    if (worker) {
        encode_shares(batch, worker, index == 0);
        put_back(batch->encoder, worker);
    } else if (index == 0) { /* without others, the caller does it all */
        atomic_store(&batch->no_memory, true);
    }
    if (index)
        leave_batch(batch);
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
            share->first = i;
            characters = 0;
        }
        size_t length = (size_t)PyUnicode_GET_LENGTH(string) + 1;
        characters += length;
        batch->n_characters += length;
        share->end = i + 1;
    }
    return 0;
}

/* Raise an exception if anything went wrong.  Shares are taken in order, and each share taken is
 * processed to its end, so the first refused text doesn't depend on the threads. */
static int raise_failure(const struct batch *batch)
{
    if (batch->raised)
        return -1;
    if (batch->no_memory) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < batch->n_shares; i++) {
        const struct outcome *outcome = atomic_load(&batch->shares[i].outcome);
        if (outcome && outcome->refused >= 0) {
            raise_surrogate(PyTuple_GET_ITEM(batch->texts, outcome->refused));
            return -1;
        }
    }
    return 0;
}

/* Encode all texts; returns a list of the results.  A thread gets at least `least` characters. */
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
    run_in_threads(threads, enter_batch, work, batch);
    PyEval_RestoreThread(batch->caller);
    make_ready(batch);
    Py_ssize_t n = PyTuple_GET_SIZE(batch->texts);
    if (raise_failure(batch) < 0)
        return NULL;
    PyObject *list = PyList_New(n);
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
    for (size_t k = 0; k < batch->n_shares; k++)
        free_outcome(atomic_load(&batch->shares[k].outcome));
    PyMem_Free(batch->made);
    PyMem_Free(batch->shares);
    Py_XDECREF(batch->texts);
    Py_DECREF(batch->encoder);
    PyMem_Free(batch);
}

/* Leave a batch as its caller, and release it if all others have left: mostly they leave at the same
 * moment. */
static void end_batch(struct batch *batch)
{
    atomic_store(&batch->stop, true);
    for (int i = 0; i < PATIENCE && atomic_load(&batch->users) > 1; i++)
        ;
    if (atomic_fetch_sub(&batch->users, 1) == 1)
        release_batch(batch);
}

void release_left_behind(void)
{
    if (!atomic_load(&left_behind))
        return;
    int64_t own = PyInterpreterState_GetID(PyInterpreterState_Get());
    struct batch *next, *batch = atomic_exchange(&left_behind, NULL);
    for (; batch; batch = next) {
        next = batch->behind;
        if (batch->interpreter == own) {
            release_batch(batch);
            continue;
        }
        batch->users = 1; /* left once more, for its own interpreter */
        leave_batch(batch);
    }
}

/* A batch with room for its results; NULL and an exception if that fails.
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
    batch->encoder = (Encoder *)Py_NewRef((PyObject *)self);
    batch->interpreter = PyInterpreterState_GetID(PyInterpreterState_Get());
    atomic_init(&batch->users, 1);
    batch->make = make;
    batch->texts = items_of_list(texts, "texts");
    if (batch->texts) {
        size_t n = (size_t)PyTuple_GET_SIZE(batch->texts);
        batch->made = PyMem_Calloc(n, sizeof *batch->made);
        batch->shares = PyMem_Calloc(n, sizeof *batch->shares);
        if (batch->made && batch->shares)
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
    Py_ssize_t room = most ? PyNumber_AsSsize_t(most, NULL) : -1; /* clamped */
    if (threads < 1 || least < 0) {
        PyErr_Format(PyExc_ValueError, "%s must be at least %d, got %d",
                     threads < 1 ? "threads" : "least", threads < 1, threads < 1 ? threads : least);
        return NULL;
    }
    if (check_scanner(self) < 0)
        return NULL;
    release_left_behind();
    struct batch *batch = new_batch(self, texts, make);
    if (!batch)
        return NULL;
    batch->most = room < 0 ? SIZE_MAX : (size_t)room;
    PyObject *list = run_batch(batch, (unsigned)threads, (size_t)least);
    end_batch(batch);
    return list;
}

/* -- Methods --------------------------------------------------------------------------------- */

const char encode_batch_doc[] =
    PyDoc_STR("encode_batch(texts, threads, least=131072, most=-1, /)\n--\n\n"
              "Return the ids of each text of a list, encoded on at most `threads` threads.\n\n"
              "It uses only as many as get `least` characters each.  Of each text, it returns the\n"
              "first `most` ids; -1 means all.");

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
