/* Python's side of runs: the types `PairCounter` and `RunCounter`.
 *
 * Threads may share one; they take turns.  The caller passes a buffer of numbers.  Any number is
 * allowed: those that are not a token separate tokens. */

#include "binding/runs.h"
#include "binding/encoder.h"
#include "binding/text.h"

/* Get a buffer of numbers of `size` bytes each.  Returns 0, or -1 and an exception. */
static int get_numbers(PyObject *object, size_t size, Py_buffer *buffer)
{
    if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) < 0)
        return -1;
    bool is_aligned = !buffer->len || (uintptr_t)buffer->buf % sizeof(uint32_t) == 0;
    if (is_aligned && (size_t)buffer->len % size == 0)
        return 0;
    PyBuffer_Release(buffer);
    PyErr_SetString(PyExc_ValueError, "expected an aligned buffer of 32-bit integers");
    return -1;
}

static PyObject *none_or_no_memory(int status)
{
    if (status < 0)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* -- Pairs ----------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    struct pair_sums sums;
} PairCounter;

static void pair_counter_dealloc(PairCounter *self)
{
    PyTypeObject *type = Py_TYPE(self);
    pair_sums_close(&self->sums);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

PyDoc_STRVAR(pair_counter_doc,
             "PairCounter(most)\n--\n\n"
             "Counts adjacent pairs in bounded memory: when there are more than `most`, it\n"
             "forgets the rarer half.");

static PyObject *pair_counter_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"most", NULL};
    Py_ssize_t most;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n:PairCounter", names, &most))
        return NULL;
    if (most < 1) {
        PyErr_SetString(PyExc_ValueError, "most must be at least 1");
        return NULL;
    }
    PairCounter *self = (PairCounter *)type->tp_alloc(type, 0); /* all zero */
    if (self && pair_sums_open(&self->sums, (size_t)most) < 0) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

PyDoc_STRVAR(pair_add_doc,
             "add(text, /)\n--\n\n"
             "Count the pairs of a text, a buffer of 32-bit numbers.  After an error, only a part\n"
             "has been counted.");

static PyObject *pair_counter_add(PairCounter *self, PyObject *text)
{
    Py_buffer buffer;
    int status;
    if (get_numbers(text, sizeof(uint32_t), &buffer) < 0)
        return NULL;
    LOCKED(self, status = pair_sums_add(&self->sums, buffer.buf,
                                        (size_t)buffer.len / sizeof(uint32_t)));
    PyBuffer_Release(&buffer);
    return none_or_no_memory(status);
}

PyDoc_STRVAR(nth_doc,
             "nth(n, /)\n--\n\n"
             "Return how often the pair at place n occurs, the most frequent at 1; 0 if there are\n"
             "fewer.");

static PyObject *pair_counter_nth(PairCounter *self, PyObject *place)
{
    Py_ssize_t n = PyNumber_AsSsize_t(place, NULL); /* clamped */
    if (n == -1 && PyErr_Occurred())
        return NULL;
    int64_t count;
    LOCKED(self, count = pair_sums_nth(&self->sums, n > 0 ? (size_t)n : 0));
    return count < 0 ? PyErr_NoMemory() : PyLong_FromLongLong(count);
}

PyDoc_STRVAR(frequent_doc,
             "frequent(least, /)\n--\n\n"
             "Return the pairs that may occur `least` times or more, as bytes: for each, the two\n"
             "tokens, 32 bits, and its count, 64 bits.");

static PyObject *list_frequent(const struct pair_sums *sums, long long least)
{
    size_t n = 0, room = (size_t)1 << sums->counts.bits;
    for (size_t i = 0; i < room; i++)
        n += sums->counts.entries[i].pair_and_1 &&
             sums->counts.entries[i].count + sums->missed >= least;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * sizeof(struct counted_pair)));
    char *out = bytes ? PyBytes_AS_STRING(bytes) : NULL;
    for (size_t i = 0; bytes && i < room; i++) {
        const struct pair_count *entry = &sums->counts.entries[i];
        if (!entry->pair_and_1 || entry->count + sums->missed < least)
            continue;
        uint64_t pair = entry->pair_and_1 - 1;
        const struct counted_pair found = {{left_of(pair), right_of(pair)}, entry->count};
        memcpy(out, &found, sizeof found);
        out += sizeof found;
    }
    return bytes;
}

static PyObject *pair_counter_frequent(PairCounter *self, PyObject *number)
{
    long long least = PyLong_AsLongLong(number);
    if (least == -1 && PyErr_Occurred())
        return NULL;
    PyObject *bytes;
    LOCKED(self, bytes = list_frequent(&self->sums, least));
    return bytes;
}

PyDoc_STRVAR(merge_doc,
             "merge(records, missed, /)\n--\n\n"
             "Add the counts of another one: the result of its `frequent`, and its `missed`.\n"
             "After an error, only a part has been added.");

static PyObject *pair_counter_merge(PairCounter *self, PyObject *args)
{
    Py_buffer buffer;
    long long missed;
    int status;
    if (!PyArg_ParseTuple(args, "y*L:merge", &buffer, &missed))
        return NULL;
    size_t n = (size_t)buffer.len / sizeof(struct counted_pair);
    bool is_whole = (size_t)buffer.len == n * sizeof(struct counted_pair);
    /* A copy: the buffer may be anywhere, and another thread may write to it. */
    struct counted_pair *pairs = PyMem_Malloc((size_t)buffer.len + 1);
    if (pairs)
        memcpy(pairs, buffer.buf, (size_t)buffer.len);
    PyBuffer_Release(&buffer);
    if (!pairs)
        return PyErr_NoMemory();
    LOCKED(self, status = is_whole ? pair_sums_merge(&self->sums, pairs, n, missed) : 1);
    PyMem_Free(pairs);
    if (status > 0) {
        PyErr_SetString(PyExc_ValueError, "records must be pairs of tokens and their counts");
        return NULL;
    }
    return none_or_no_memory(status);
}

static PyObject *pair_counter_missed(PairCounter *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->sums.missed);
}

static PyMethodDef pair_counter_methods[] = {
    {"add", (PyCFunction)pair_counter_add, METH_O, pair_add_doc},
    {"merge", (PyCFunction)pair_counter_merge, METH_VARARGS, merge_doc},
    {"nth", (PyCFunction)pair_counter_nth, METH_O, nth_doc},
    {"frequent", (PyCFunction)pair_counter_frequent, METH_O, frequent_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef pair_counter_getset[] = {
    {"missed", (getter)pair_counter_missed, NULL,
     "A pair occurred at most this much more often than its count says.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot pair_counter_slots[] = {
    {Py_tp_doc, (void *)pair_counter_doc},
    {Py_tp_new, (void *)pair_counter_make},
    {Py_tp_dealloc, (void *)pair_counter_dealloc},
    {Py_tp_methods, pair_counter_methods},
    {Py_tp_getset, pair_counter_getset},
    {0, NULL},
};

PyType_Spec pair_counter_spec = {
    .name = "_bpe_tokenizer.native.PairCounter",
    .basicsize = sizeof(PairCounter),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = pair_counter_slots,
};

/* -- Runs ------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    struct run_sums sums;
} RunCounter;

static void run_counter_dealloc(RunCounter *self)
{
    PyTypeObject *type = Py_TYPE(self);
    run_sums_close(&self->sums);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

const struct byte_map *runs_of(PyObject *object)
{
    /* Recognize the type by its function: the type object isn't at hand here. */
    if (Py_TYPE(object)->tp_dealloc != (destructor)run_counter_dealloc)
        return NULL;
    return &((RunCounter *)object)->sums.runs;
}

PyDoc_STRVAR(run_counter_doc,
             "RunCounter(keep)\n--\n\n"
             "Counts runs of tokens: text is cut where a pair is not kept.\n\n"
             "Args:\n"
             "    keep: a buffer of 32-bit numbers, two for each pair.");

static PyObject *run_counter_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"keep", NULL};
    PyObject *keep;
    Py_buffer buffer;
    uint64_t seed;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:RunCounter", names, &keep) ||
        get_seed(&seed) < 0 || get_numbers(keep, 2 * sizeof(uint32_t), &buffer) < 0)
        return NULL;
    RunCounter *self = (RunCounter *)type->tp_alloc(type, 0); /* all zero */
    int status = self ? run_sums_open(&self->sums, seed) : -1;
    const uint32_t *pairs = buffer.buf;
    for (size_t i = 0; status == 0 && i < (size_t)buffer.len / sizeof *pairs; i += 2)
        status = run_sums_keep(&self->sums, pairs[i], pairs[i + 1]);
    PyBuffer_Release(&buffer);
    if (status < 0) {
        Py_XDECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

PyDoc_STRVAR(run_add_doc,
             "add(text, /)\n--\n\n"
             "Count the runs of a text, a buffer of 32-bit numbers.  After an error, only a part\n"
             "has been counted.");

static PyObject *run_counter_add(RunCounter *self, PyObject *text)
{
    Py_buffer buffer;
    int status;
    if (get_numbers(text, sizeof(uint32_t), &buffer) < 0)
        return NULL;
    LOCKED(self, status = run_sums_add(&self->sums, buffer.buf,
                                       (size_t)buffer.len / sizeof(uint32_t)));
    PyBuffer_Release(&buffer);
    return none_or_no_memory(status);
}

/* Write a run, then -1. */
static uint32_t *list_run(const uint8_t *key, size_t size, uint32_t *out)
{
    for (size_t at = 0; at < size; at += PACKED)
        *out++ = unpack(key + at);
    *out++ = UINT32_MAX;
    return out;
}

/* How many numbers all runs have, with a -1 after each. */
static size_t runs_length(const struct byte_map *map)
{
    size_t length = byte_map_size(map);
    for (size_t i = 0; map->longs && i < (size_t)1 << map->long_bits; i++)
        length += map->longs[i].length / PACKED;
    for (size_t i = 0; map->shorts && i < (size_t)1 << map->short_bits; i++)
        length += (map->shorts[i].key.high >> 56) / PACKED;
    return length;
}

static void list_runs(const struct byte_map *map, uint32_t *symbols, int64_t *counts)
{
    uint8_t bytes[16];
    for (size_t i = 0; map->longs && i < (size_t)1 << map->long_bits; i++) {
        const struct long_item *item = &map->longs[i];
        if (!item->length)
            continue;
        symbols = list_run(map->bytes + item->at, item->length, symbols);
        *counts++ = (int64_t)item->number;
    }
    for (size_t i = 0; map->shorts && i < (size_t)1 << map->short_bits; i++) {
        const struct short_item *item = &map->shorts[i];
        if (!item->key.high)
            continue;
        symbols = list_run(bytes, short_bytes(item->key, bytes), symbols);
        *counts++ = (int64_t)item->number;
    }
}

PyDoc_STRVAR(words_doc,
             "words()\n--\n\n"
             "Return the runs and their counts, as `learn_joins` takes words, in any order.");

static PyObject *words_of_runs(const struct byte_map *map)
{
    size_t length = runs_length(map), n = byte_map_size(map);
    if (length > PY_SSIZE_T_MAX / sizeof(uint32_t) || n > PY_SSIZE_T_MAX / sizeof(int64_t))
        return PyErr_NoMemory();
    PyObject *symbols =
        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(length * sizeof(uint32_t)));
    PyObject *counts = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * sizeof(int64_t)));
    PyObject *words = symbols && counts ? PyTuple_Pack(2, symbols, counts) : NULL;
    if (words) /* what a bytes object holds is aligned for any number */
        list_runs(map, (uint32_t *)(void *)PyBytes_AS_STRING(symbols),
                  (int64_t *)(void *)PyBytes_AS_STRING(counts));
    Py_XDECREF(symbols);
    Py_XDECREF(counts);
    return words;
}

static PyObject *run_counter_words(RunCounter *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *words;
    LOCKED(self, words = words_of_runs(&self->sums.runs));
    return words;
}

static Py_ssize_t run_counter_length(RunCounter *self)
{
    return (Py_ssize_t)byte_map_size(&self->sums.runs);
}

static PyMethodDef run_counter_methods[] = {
    {"add", (PyCFunction)run_counter_add, METH_O, run_add_doc},
    {"words", (PyCFunction)run_counter_words, METH_NOARGS, words_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot run_counter_slots[] = {
    {Py_tp_doc, (void *)run_counter_doc},
    {Py_tp_new, (void *)run_counter_make},
    {Py_tp_dealloc, (void *)run_counter_dealloc},
    {Py_tp_methods, run_counter_methods},
    {Py_sq_length, (void *)run_counter_length},
    {0, NULL},
};

PyType_Spec run_counter_spec = {
    .name = "_bpe_tokenizer.native.RunCounter",
    .basicsize = sizeof(RunCounter),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = run_counter_slots,
};
