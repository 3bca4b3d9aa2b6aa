/* One long text, on several threads.
 *
 * The caller passes the places where the text can be cut.  Each thread takes the next part, encodes
 * it with its own worker, and marks it as ready.  None of this needs the interpreter's lock.  The
 * caller's thread takes part; in between, it appends the ids of ready parts to the result, in
 * order.  Only that needs the lock; the other threads continue in the meantime. */

#include "binding/encoder.h"

#include <stdlib.h>

#include "base/threads.h"
#include "binding/text.h"
#include "scan/normal.h"

/* What can go wrong without the lock.  If several things do, the last in this list is reported. */
enum failure { NONE, NOT_PLAIN, SURROGATE, NO_MEMORY };

struct part {
    size_t start, end;  /* in characters */
    uint32_t *ids;      /* NULL until the part is ready, and again once they are in the result */
    size_t n_ids;
    atomic_bool ready;
};

struct joined {
    Encoder *encoder;
    PyObject *text;    /* a reference of our own */
    bool to_buffer;    /* the result is a bytearray; else a list */
    bool check_normal; /* whether to check that the text is in normal form C */
    size_t n_parts;
    struct part *parts;
    atomic_size_t next; /* part to be taken */
    atomic_int failure;
    PyObject *result;  /* nobody else sees it before it is complete */
    size_t room, n_ids; /* ids it has room for, and ids in it */
    size_t done;       /* parts whose ids are in the result */
    bool raised;       /* an exception is set */
    PyThreadState *caller; /* its state, while it does not hold the lock */
};

/* -- Without the interpreter's lock ---------------------------------------------------------- */

static enum failure encode_part(const struct joined *joined, struct worker *worker,
                                struct part *part)
{
    const Encoder *encoder = joined->encoder;
    int kind = (int)PyUnicode_KIND(joined->text);
    const char *characters = (const char *)PyUnicode_DATA(joined->text);
    characters += part->start * (size_t)kind;
    size_t size;
    if (joined->check_normal && !surely_nfc(characters, kind, part->end - part->start))
        return NOT_PLAIN;
    const uint8_t *text = checked_utf8_between(worker, joined->text, part->start, part->end, &size);
    if (!text && size)
        return SURROGATE;
    worker->n_ids = 0;
    if (!text ||
        encode_text(&encoder->vocabulary, worker, encoder->cutter, text, size, true) < 0)
        return NO_MEMORY;
    part->n_ids = worker->n_ids;
    part->ids = malloc((worker->n_ids + 1) * sizeof *part->ids);
    if (!part->ids)
        return NO_MEMORY;
    memcpy(part->ids, worker->ids, worker->n_ids * sizeof *part->ids);
    atomic_store_explicit(&part->ready, true, memory_order_release);
    return NONE;
}

static void fail(struct joined *joined, int failure)
{
    int before = atomic_load(&joined->failure);
    while (before < failure && !atomic_compare_exchange_weak(&joined->failure, &before, failure))
        ;
}

/* -- With the lock --------------------------------------------------------------------------- */

static int make_room_in_list(struct joined *joined, size_t room)
{
    PyObject *list = PyList_New((Py_ssize_t)room);
    if (!list)
        return -1;
    PyObject_GC_UnTrack(list); /* nobody may find it half filled while the lock is not held */
    if (joined->result) {
        memcpy(((PyListObject *)list)->ob_item, ((PyListObject *)joined->result)->ob_item,
               joined->n_ids * sizeof(PyObject *));
        Py_SET_SIZE(joined->result, 0); /* the new list has the references */
        Py_DECREF(joined->result);
    }
    joined->result = list;
    return 0;
}

static int make_room_in_buffer(struct joined *joined, size_t room)
{
    if (!joined->result)
        joined->result = PyByteArray_FromStringAndSize(NULL, 0); /* as in buffer_of */
    if (!joined->result)
        return -1;
    return PyByteArray_Resize(joined->result, (Py_ssize_t)(room * sizeof(uint32_t)));
}

static int grow(struct joined *joined, size_t room)
{
    joined->room = room;
    return joined->to_buffer ? make_room_in_buffer(joined, room) : make_room_in_list(joined, room);
}

/* Make room for the ids of the next part, and for as many more as the rest of the text will need if
 * it is like the text so far: growing again would touch pages twice.  Returns 0, or -1 and an
 * exception. */
static int make_room(struct joined *joined, const struct part *part)
{
    size_t needed = joined->n_ids + part->n_ids;
    if (joined->result && joined->room >= needed)
        return 0;
    size_t length = joined->parts[joined->n_parts - 1].end;
    double more = (double)needed / (double)part->end * (double)(length - part->end);
    size_t room = needed + (size_t)(more * 17 / 16);
    return grow(joined, room);
}

/* Append the ids of a part.  Returns how many; if fewer than all, an exception is set. */
static size_t append(struct joined *joined, const struct part *part)
{
    if (!joined->to_buffer) {
        PyObject **items = ((PyListObject *)joined->result)->ob_item + joined->n_ids;
        return fill_ints(joined->encoder, part->ids, part->n_ids, items);
    }
    uint32_t *ids = (uint32_t *)(void *)PyByteArray_AS_STRING(joined->result);
    memcpy(ids + joined->n_ids, part->ids, part->n_ids * sizeof *ids);
    return part->n_ids;
}

/* Append the ids of the parts that are ready, up to the first that is not. */
static void append_ready(struct joined *joined)
{
    while (!joined->raised && joined->done < joined->n_parts) {
        struct part *part = &joined->parts[joined->done];
        if (!atomic_load_explicit(&part->ready, memory_order_acquire))
            break;
        if (make_room(joined, part) < 0) {
            joined->raised = true;
            break;
        }
        size_t n = append(joined, part);
        joined->n_ids += n;
        joined->raised = n < part->n_ids;
        free(part->ids);
        part->ids = NULL;
        joined->done++;
    }
    if (!joined->raised && PyErr_CheckSignals() < 0)
        joined->raised = true;
}

/* -- Both ------------------------------------------------------------------------------------ */

/* What each thread does; the one with index 0 is the caller's. */
static void work(void *context, unsigned index)
{
    struct joined *joined = context;
    struct worker *worker = take_worker(joined->encoder);
    if (!worker) {
        fail(joined, NO_MEMORY);
        return;
    }
    while (atomic_load(&joined->failure) == NONE) {
        size_t next = atomic_fetch_add(&joined->next, 1);
        if (next >= joined->n_parts)
            break;
        enum failure failure = encode_part(joined, worker, &joined->parts[next]);
        if (failure)
            fail(joined, failure);
        if (index == 0) {
            PyEval_RestoreThread(joined->caller);
            append_ready(joined);
            joined->caller = PyEval_SaveThread();
            if (joined->raised)
                fail(joined, NO_MEMORY); /* so that others stop, too */
        }
    }
    put_back(joined->encoder, worker);
}

/* Append the remaining ids, and return the result. */
static PyObject *complete(struct joined *joined)
{
    append_ready(joined);
    if (!joined->raised && !joined->result) /* of an empty text */
        joined->raised = grow(joined, 0) < 0;
    PyObject *result = joined->result;
    if (!joined->raised && joined->to_buffer)
        joined->raised = make_room_in_buffer(joined, joined->n_ids) < 0;
    if (joined->raised)
        return NULL;
    if (!joined->to_buffer) {
        Py_SET_SIZE(result, (Py_ssize_t)joined->n_ids); /* lists may have room to spare */
        PyObject_GC_Track(result);
    }
    joined->result = NULL;
    return result;
}

/* Encode all parts; a thread gets at least `least` characters. */
static PyObject *run(struct joined *joined, unsigned threads, size_t least)
{
    size_t length = joined->n_parts ? joined->parts[joined->n_parts - 1].end : 0;
    size_t most = least && length / least < joined->n_parts ? length / least : joined->n_parts;
    if (threads > most)
        threads = (unsigned)most;
    joined->caller = PyEval_SaveThread();
    run_in_threads_and_wait(threads, work, joined);
    PyEval_RestoreThread(joined->caller);
    if (joined->raised)
        return NULL;
    switch (atomic_load(&joined->failure)) {
    case NO_MEMORY:
        return PyErr_NoMemory();
    case SURROGATE:
        raise_surrogate(joined->text);
        return NULL;
    case NOT_PLAIN:
        Py_RETURN_NONE;
    default:
        return complete(joined);
    }
}

static void release(struct joined *joined)
{
    for (size_t i = 0; joined->parts && i < joined->n_parts; i++)
        free(joined->parts[i].ids);
    if (joined->result && !joined->to_buffer)
        Py_SET_SIZE(joined->result, (Py_ssize_t)joined->n_ids);
    Py_XDECREF(joined->result);
    PyMem_Free(joined->parts);
    Py_XDECREF(joined->text);
    PyMem_Free(joined);
}

/* Read where parts end: a list of rising numbers that ends with the length of the text. */
static int read_places(struct joined *joined, PyObject *places)
{
    size_t start = 0, length = (size_t)PyUnicode_GET_LENGTH(joined->text);
    bool rise = true;
    for (size_t i = 0; rise && i < joined->n_parts; i++) {
        size_t end = PyLong_AsSize_t(PyTuple_GET_ITEM(places, (Py_ssize_t)i));
        if (end == (size_t)-1 && PyErr_Occurred())
            return -1;
        rise = end > start && end <= length;
        joined->parts[i].start = start;
        joined->parts[i].end = start = end;
    }
    if (rise && start == length)
        return 0;
    PyErr_SetString(PyExc_ValueError, "ends must rise to the length of the text");
    return -1;
}

/* Make the job; NULL and an exception if that fails.
 *
 * NOTE: it is not on the stack.  If the interpreter ends while the caller's thread waits for the
 * lock, that thread ends there and then, and its stack is gone; the others go on for a while. */
static struct joined *new_joined(Encoder *self, PyObject *text, PyObject *ends)
{
    struct joined *joined = PyMem_Calloc(1, sizeof *joined);
    if (!joined) {
        PyErr_NoMemory();
        return NULL;
    }
    joined->encoder = self;
    joined->text = Py_NewRef(text);
    PyObject *places = items_of_list(ends, "ends");
    if (places) {
        joined->n_parts = (size_t)PyTuple_GET_SIZE(places);
        joined->parts = PyMem_Calloc(joined->n_parts, sizeof *joined->parts);
        if (!joined->parts)
            PyErr_NoMemory();
        int status = joined->parts ? read_places(joined, places) : -1;
        Py_DECREF(places);
        if (status == 0)
            return joined;
    }
    release(joined);
    return NULL;
}

static PyObject *encode_joined(Encoder *self, PyObject *args, bool to_buffer)
{
    PyObject *text, *ends;
    int threads, is_normal, least = THREAD_CHARACTERS;
    if (!PyArg_ParseTuple(args, "OOip|i", &text, &ends, &threads, &is_normal, &least))
        return NULL;
    if (threads < 1 || least < 0) {
        PyErr_Format(PyExc_ValueError, "%s must be at least %d, got %d",
                     threads < 1 ? "threads" : "least", threads < 1, threads < 1 ? threads : least);
        return NULL;
    }
    if (check_string(text) < 0 || check_scanner(self) < 0)
        return NULL;
    bool check = self->ascii_only && !is_normal && !PyUnicode_IS_ASCII(text);
    if (check && !self->or_nfc)
        Py_RETURN_NONE;
    struct joined *joined = new_joined(self, text, ends);
    if (!joined)
        return NULL;
    joined->to_buffer = to_buffer;
    joined->check_normal = check;
    PyObject *made = run(joined, (unsigned)threads, (size_t)least);
    release(joined);
    return made;
}

const char encode_joined_doc[] =
    PyDoc_STR("encode_joined(text, ends, threads, is_normal, least=131072, /)\n--\n\n"
              "Return the ids of a text in parts, encoded on at most `threads` threads.\n\n"
              "It uses only as many as get `least` characters each.  `ends`, a list, says where\n"
              "the parts end, each of which must be encoded as it is within the text.\n\n"
              "Returns:\n"
              "    A list; None if `normalizer` might change the text, unless it `is_normal`.");

PyObject *encoder_encode_joined(Encoder *self, PyObject *args)
{
    return encode_joined(self, args, false);
}

const char encode_joined_to_buffer_doc[] =
    PyDoc_STR("encode_joined_to_buffer(text, ends, threads, is_normal, least=131072, /)\n--\n\n"
              "Do what encode_joined does; a bytearray, as of encode_to_buffer.");

PyObject *encoder_encode_joined_to_buffer(Encoder *self, PyObject *args)
{
    return encode_joined(self, args, true);
}
