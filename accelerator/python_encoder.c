/* Python's side of the encoder: the type `Encoder`.
 *
 * What is asked for here has been checked in Python; what is checked here again is all that could
 * lead C astray.  An OverflowError says that something is too large for this engine, not that it
 * is wrong: the Python engine takes it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>

#include "encode.h"
#include "python_encoder.h"
#include "python_scan.h"
#include "python_text.h"
#include "tokens.h"

enum {
    SPARE_WORKERS = 8,
    AHEAD = 16, /* int objects fetched ahead of their use */
};

/* -- The encoder object ---------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    struct tokens tokens;
    struct vocabulary vocabulary;
    scanner *scan;   /* NULL: text comes cut into pre-tokens */
    PyObject **ints; /* each id as an object, so that a list takes a reference for each */

    /* Workers that nobody uses now.  Who encodes takes one out, or makes one, and puts it back:
     * threads never share one, with or without the interpreter's lock. */
    _Atomic(struct worker *) spare[SPARE_WORKERS];
} Encoder;

static struct worker *take_worker(Encoder *self)
{
    for (int i = 0; i < SPARE_WORKERS; i++) {
        struct worker *worker = atomic_exchange_explicit(&self->spare[i], NULL,
                                                         memory_order_acquire);
        if (worker)
            return worker;
    }
    struct worker *worker = worker_new();
    if (!worker)
        PyErr_NoMemory();
    return worker;
}

static void put_back(Encoder *self, struct worker *worker)
{
    worker_trim(worker);
    for (int i = 0; i < SPARE_WORKERS; i++) {
        struct worker *none = NULL;
        if (atomic_compare_exchange_strong_explicit(&self->spare[i], &none, worker,
                                                    memory_order_release, memory_order_relaxed))
            return;
    }
    worker_free(worker);
}

static void encoder_dealloc(Encoder *self)
{
    PyTypeObject *type = Py_TYPE(self);
    for (int i = 0; i < SPARE_WORKERS; i++)
        worker_free(atomic_load(&self->spare[i]));
    for (uint32_t id = 0; self->ints && id < self->tokens.n_ids; id++)
        Py_XDECREF(self->ints[id]);
    PyMem_Free(self->ints);
    vocabulary_release(&self->vocabulary);
    tokens_release(&self->tokens);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* -- Loading --------------------------------------------------------------------------------- */

/* Read an id.  Returns NO_TOKEN and an exception if it is none that fits. */
static uint32_t read_id(PyObject *object)
{
    long value = PyLong_AsLong(object);
    if (value == -1 && PyErr_Occurred())
        return NO_TOKEN;
    if (value < 0) {
        PyErr_Format(PyExc_ValueError, "id %ld is negative", value);
        return NO_TOKEN;
    }
    if (value >= MAX_IDS) {
        PyErr_Format(PyExc_OverflowError, "id %ld is %d or more", value, MAX_IDS);
        return NO_TOKEN;
    }
    return (uint32_t)value;
}

static int read_largest(PyObject *ids, uint32_t *n_ids)
{
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(ids, &at, &key, &value);) {
        uint32_t id = read_id(value);
        if (id == NO_TOKEN)
            return -1;
        *n_ids = id >= *n_ids ? id + 1 : *n_ids;
    }
    return 0;
}

/* Add the tokens of a dict, bytes to id.  An id that has a token already keeps it. */
static int read_tokens(Encoder *self, PyObject *vocab)
{
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(vocab, &at, &key, &value);) {
        if (!PyBytes_Check(key)) {
            PyErr_SetString(PyExc_TypeError, "tokens must be bytes");
            return -1;
        }
        uint32_t id = read_id(value);
        if (id == NO_TOKEN)
            return -1;
        if (tokens_have(&self->tokens, id))
            continue;
        if (tokens_add(&self->tokens, id, (const uint8_t *)PyBytes_AS_STRING(key),
                       (size_t)PyBytes_GET_SIZE(key)) < 0) {
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

static int read_byte_ids(Encoder *self, uint32_t byte_ids[256])
{
    for (int byte = 0; byte < 256; byte++) {
        uint8_t bytes[1] = {(uint8_t)byte};
        byte_ids[byte] = tokens_find(&self->tokens, bytes, 1, bytes, 0);
        if (byte_ids[byte] == NO_TOKEN) {
            PyErr_Format(PyExc_ValueError, "no token for byte %d", byte);
            return -1;
        }
    }
    return 0;
}

/* Read one merge, a tuple of two ids, and find what it makes. */
static int read_merge(Encoder *self, PyObject *item, struct merge *merge)
{
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) {
        PyErr_SetString(PyExc_TypeError, "a merge must be a tuple of two ids");
        return -1;
    }
    if ((merge->left = read_id(PyTuple_GET_ITEM(item, 0))) == NO_TOKEN ||
        (merge->right = read_id(PyTuple_GET_ITEM(item, 1))) == NO_TOKEN)
        return -1;
    const struct tokens *tokens = &self->tokens;
    if (tokens_have(tokens, merge->left) && tokens_have(tokens, merge->right)) {
        struct token left = tokens->by_id[merge->left], right = tokens->by_id[merge->right];
        merge->joined = tokens_find(tokens, tokens->bytes + left.at, left.length,
                                    tokens->bytes + right.at, right.length);
        if (merge->joined != NO_TOKEN)
            return 0;
    }
    PyErr_Format(PyExc_ValueError, "merge (%u, %u) makes no token", merge->left, merge->right);
    return -1;
}

static int read_merges(Encoder *self, PyObject *merges)
{
    uint32_t byte_ids[256];
    Py_ssize_t n = PyList_GET_SIZE(merges);
    if (n > MAX_MERGES) {
        PyErr_Format(PyExc_OverflowError, "more than %d merges", MAX_MERGES);
        return -1;
    }
    if (read_byte_ids(self, byte_ids) < 0)
        return -1;
    struct merge *read = PyMem_Malloc(((size_t)n + 1) * sizeof *read);
    if (!read) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (read_merge(self, PyList_GET_ITEM(merges, i), &read[i]) < 0) {
            PyMem_Free(read);
            return -1;
        }
    }
    int status = vocabulary_load(&self->vocabulary, self->tokens.n_ids, byte_ids, read, (size_t)n);
    PyMem_Free(read);
    if (status < 0)
        PyErr_NoMemory();
    return status;
}

static int make_ints(Encoder *self)
{
    self->ints = PyMem_Calloc(self->tokens.n_ids, sizeof *self->ints);
    if (!self->ints) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t id = 0; id < self->tokens.n_ids; id++)
        if (!(self->ints[id] = PyLong_FromLong((long)id)))
            return -1;
    return 0;
}

static int load(Encoder *self, PyObject *vocab, PyObject *merges, PyObject *added,
                int ignore_merges)
{
    uint32_t n_ids = 0;
    if (read_largest(vocab, &n_ids) < 0 || (added && read_largest(added, &n_ids) < 0))
        return -1;
    if (tokens_open(&self->tokens, n_ids) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (read_tokens(self, vocab) < 0)
        return -1;
    if (tokens_index(&self->tokens) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (read_merges(self, merges) < 0)
        return -1;
    if (!ignore_merges) {
        tokens_drop_index(&self->tokens);
    } else if (vocabulary_set_whole(&self->vocabulary, &self->tokens) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (added && read_tokens(self, added) < 0)
        return -1;
    return make_ints(self);
}

PyDoc_STRVAR(encoder_doc,
             "Encoder(vocab, merges, pattern, ignore_merges=False, added=None, portable=False)\n"
             "--\n\n"
             "Turns text into ids and ids into bytes.\n\n"
             "Args:\n"
             "    vocab: token -> id, dict of bytes; with all 256 bytes.\n"
             "    merges: list of (left, right) ids, in rank order.\n"
             "    pattern: the name of a built-in split pattern; None if text is given to\n"
             "        encode_pretokens only.\n"
             "    ignore_merges: a pre-token that is a token needs no merges.\n"
             "    added: content -> id of added tokens, dict of bytes; for decoding.\n"
             "    portable: do without special instructions of this processor.\n\n"
             "Raises:\n"
             "    OverflowError: an id, or the number of merges, is too large for this engine.");

static PyObject *encoder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"vocab",         "merges", "pattern",
                            "ignore_merges", "added",  "portable", NULL};
    PyObject *vocab, *merges, *added = NULL;
    const char *pattern;
    int ignore_merges = 0, portable = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!z|pO!p:Encoder", names, &PyDict_Type,
                                     &vocab, &PyList_Type, &merges, &pattern, &ignore_merges,
                                     &PyDict_Type, &added, &portable))
        return NULL;
    scanner *scan = NULL;
    if (pattern && !(scan = scanner_named(pattern, portable)))
        return NULL;
    Encoder *self = (Encoder *)type->tp_alloc(type, 0); /* all zero */
    if (!self)
        return NULL;
    self->scan = scan;
    for (int i = 0; i < SPARE_WORKERS; i++)
        atomic_init(&self->spare[i], NULL);
    if (load(self, vocab, merges, added, ignore_merges) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* -- Encoding -------------------------------------------------------------------------------- */

/* Encode a string into worker->ids, or count its ids.  Returns 0, or -1 and an exception. */
static int encode_into(Encoder *self, struct worker *worker, PyObject *string, bool keep)
{
    size_t size;
    const uint8_t *text = utf8_of(worker, string, &size);
    if (!text)
        return -1;
    if (!self->scan) {
        PyErr_SetString(PyExc_TypeError, "no scanner for this pattern: use encode_pretokens");
        return -1;
    }
    if (encode_text(&self->vocabulary, worker, self->scan, text, size, keep) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* A list of ids.  Which ints it takes is at random, so they are fetched ahead of their use, and the
 * pointers to them ahead of that. */
static PyObject *list_of(const Encoder *self, const uint32_t *ids, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    if (!list)
        return NULL;
    for (size_t i = 0; i < n; i++) {
#if defined(__GNUC__)
        if (i + 2 * AHEAD < n) {
            __builtin_prefetch(&self->ints[ids[i + 2 * AHEAD]]);
            __builtin_prefetch(self->ints[ids[i + AHEAD]], 1);
        }
#endif
        PyObject *id = self->ints[ids[i]];
        Py_INCREF(id);
        PyList_SET_ITEM(list, (Py_ssize_t)i, id);
    }
    return list;
}

PyDoc_STRVAR(encode_doc, "encode(text, /)\n--\n\nReturn the ids of a text, a list.");

static PyObject *encoder_encode(Encoder *self, PyObject *string)
{
    struct worker *worker = take_worker(self);
    if (!worker)
        return NULL;
    PyObject *list = NULL;
    if (encode_into(self, worker, string, true) == 0)
        list = list_of(self, worker->ids, worker->n_ids);
    put_back(self, worker);
    return list;
}

PyDoc_STRVAR(encode_bytes_doc,
             "encode_bytes(text, /)\n--\n\n"
             "Return the ids of a text as bytes: four for each, in the machine's order.");

static PyObject *encoder_encode_bytes(Encoder *self, PyObject *string)
{
    struct worker *worker = take_worker(self);
    if (!worker)
        return NULL;
    PyObject *bytes = NULL;
    if (encode_into(self, worker, string, true) == 0)
        bytes = PyBytes_FromStringAndSize((const char *)worker->ids,
                                          (Py_ssize_t)(worker->n_ids * sizeof *worker->ids));
    put_back(self, worker);
    return bytes;
}

PyDoc_STRVAR(count_doc, "count(text, /)\n--\n\nCount the ids that encode would give.");

static PyObject *encoder_count(Encoder *self, PyObject *string)
{
    struct worker *worker = take_worker(self);
    if (!worker)
        return NULL;
    PyObject *count = NULL;
    if (encode_into(self, worker, string, false) == 0)
        count = PyLong_FromSize_t(worker->n_ids);
    put_back(self, worker);
    return count;
}

/* Write up to CHUNK pre-tokens of a list, one behind the other, and where they end.  Returns how
 * many of the list are done with, or -1 and an exception; empty ones are left out. */
static Py_ssize_t gather(struct worker *worker, PyObject *list, Py_ssize_t first, size_t *count)
{
    size_t room = 0;
    Py_ssize_t end = first;
    for (; end < PyList_GET_SIZE(list) && end - first < CHUNK; end++) {
        PyObject *string = PyList_GET_ITEM(list, end);
        if (check_string(string) < 0)
            return -1;
        room += 4 * (size_t)PyUnicode_GET_LENGTH(string);
    }
    if (worker_reserve_text(worker, room + 1) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    uint8_t *out = worker->text;
    *count = 0;
    for (Py_ssize_t i = first; i < end; i++) {
        PyObject *string = PyList_GET_ITEM(list, i);
        out = write_utf8(string, out);
        if (!out) {
            raise_surrogate(string);
            return -1;
        }
        if (PyUnicode_GET_LENGTH(string))
            worker->ends[(*count)++] = (size_t)(out - worker->text);
    }
    return end;
}

static int encode_list(Encoder *self, struct worker *worker, PyObject *list)
{
    for (Py_ssize_t done = 0; done < PyList_GET_SIZE(list);) {
        size_t count;
        done = gather(worker, list, done, &count);
        if (done < 0)
            return -1;
        size_t size = count ? worker->ends[count - 1] : 0;
        if (encode_pieces(&self->vocabulary, worker, worker->text, size, 0, count) < 0) {
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(encode_pretokens_doc,
             "encode_pretokens(pretokens, /)\n--\n\n"
             "Return the ids of a text that is cut already, a list of str.");

static PyObject *encoder_encode_pretokens(Encoder *self, PyObject *pretokens)
{
    if (!PyList_Check(pretokens)) {
        PyErr_SetString(PyExc_TypeError, "pretokens must be a list");
        return NULL;
    }
    struct worker *worker = take_worker(self);
    if (!worker)
        return NULL;
    PyObject *list = NULL;
    if (encode_list(self, worker, pretokens) == 0)
        list = list_of(self, worker->ids, worker->n_ids);
    put_back(self, worker);
    return list;
}

/* -- Decoding -------------------------------------------------------------------------------- */

struct buffer {
    char *bytes;
    size_t used, room;
};

static int grow_buffer(struct buffer *buffer, size_t more)
{
    if (more > (size_t)PY_SSIZE_T_MAX / 2 - buffer->used) {
        PyErr_NoMemory();
        return -1;
    }
    size_t room = buffer->used + more;
    room += room / 2;
    char *larger = PyMem_Realloc(buffer->bytes, room);
    if (!larger) {
        PyErr_NoMemory();
        return -1;
    }
    buffer->bytes = larger;
    buffer->room = room;
    return 0;
}

/* Append the bytes of one token. */
static int append_token(const struct tokens *tokens, struct buffer *buffer, PyObject *id_object)
{
    int overflow;
    long id = PyLong_AsLongAndOverflow(id_object, &overflow);
    if (id == -1 && !overflow && PyErr_Occurred())
        return -1;
    if (overflow || id < 0 || id > UINT32_MAX || !tokens_have(tokens, (uint32_t)id)) {
        PyErr_SetObject(PyExc_KeyError, id_object);
        return -1;
    }
    struct token token = tokens->by_id[id];
    if (buffer->room - buffer->used < token.length + (size_t)TOKEN_SLACK &&
        grow_buffer(buffer, token.length + (size_t)TOKEN_SLACK) < 0)
        return -1;
    const uint8_t *bytes = tokens->bytes + token.at;
    char *out = buffer->bytes + buffer->used;
    if (token.length <= TOKEN_SLACK) /* there is room to read and to write as much */
        memcpy(out, bytes, TOKEN_SLACK);
    else
        memcpy(out, bytes, token.length);
    buffer->used += token.length;
    return 0;
}

PyDoc_STRVAR(decode_doc,
             "decode(ids, /)\n--\n\n"
             "Join the bytes of tokens.\n\n"
             "Raises:\n"
             "    KeyError: an id has no token.");

static PyObject *encoder_decode(Encoder *self, PyObject *ids)
{
    PyObject *items = PySequence_Fast(ids, "ids must be a sequence of integers");
    if (!items)
        return NULL;
    PyObject *result = NULL;
    struct buffer buffer = {0};
    /* NOTE: reading an id may run Python code, if it is no int, and that may change the list. */
    if (grow_buffer(&buffer, (size_t)PySequence_Fast_GET_SIZE(items) * 5 + TOKEN_SLACK) < 0)
        goto done;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
        PyObject *id = PySequence_Fast_GET_ITEM(items, i);
        Py_INCREF(id);
        int status = append_token(&self->tokens, &buffer, id);
        Py_DECREF(id);
        if (status < 0)
            goto done;
    }
    result = PyBytes_FromStringAndSize(buffer.bytes, (Py_ssize_t)buffer.used);
done:
    PyMem_Free(buffer.bytes);
    Py_DECREF(items);
    return result;
}

/* -- The cache ------------------------------------------------------------------------------- */

PyDoc_STRVAR(cache_info_doc,
             "cache_info()\n--\n\nReturn (look-ups, misses, pre-tokens held).");

static PyObject *encoder_cache_info(Encoder *self, PyObject *Py_UNUSED(ignored))
{
    struct worker *taken[SPARE_WORKERS];
    uint64_t lookups = 0, misses = 0, size = 0;
    for (int i = 0; i < SPARE_WORKERS; i++) {
        taken[i] = atomic_exchange(&self->spare[i], NULL);
        if (taken[i]) {
            lookups += taken[i]->cache.lookups;
            misses += taken[i]->cache.misses;
            size += taken[i]->cache.short_entries + taken[i]->cache.long_entries;
        }
    }
    for (int i = 0; i < SPARE_WORKERS; i++)
        if (taken[i])
            put_back(self, taken[i]);
    return Py_BuildValue("KKK", (unsigned long long)lookups, (unsigned long long)misses,
                         (unsigned long long)size);
}

PyDoc_STRVAR(clear_cache_doc, "clear_cache()\n--\n\nForget all pre-tokens.");

static PyObject *encoder_clear_cache(Encoder *self, PyObject *Py_UNUSED(ignored))
{
    for (int i = 0; i < SPARE_WORKERS; i++)
        worker_free(atomic_exchange(&self->spare[i], NULL));
    Py_RETURN_NONE;
}

static PyMethodDef encoder_methods[] = {
    {"encode", (PyCFunction)encoder_encode, METH_O, encode_doc},
    {"encode_bytes", (PyCFunction)encoder_encode_bytes, METH_O, encode_bytes_doc},
    {"encode_pretokens", (PyCFunction)encoder_encode_pretokens, METH_O, encode_pretokens_doc},
    {"count", (PyCFunction)encoder_count, METH_O, count_doc},
    {"decode", (PyCFunction)encoder_decode, METH_O, decode_doc},
    {"cache_info", (PyCFunction)encoder_cache_info, METH_NOARGS, cache_info_doc},
    {"clear_cache", (PyCFunction)encoder_clear_cache, METH_NOARGS, clear_cache_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot encoder_slots[] = {
    {Py_tp_doc, (void *)encoder_doc},
    {Py_tp_new, (void *)encoder_new},
    {Py_tp_dealloc, (void *)encoder_dealloc},
    {Py_tp_methods, encoder_methods},
    {0, NULL},
};

PyType_Spec encoder_spec = {
    .name = "_bpe_tokenizer.Encoder",
    .basicsize = sizeof(Encoder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = encoder_slots,
};
