/* Which characters each token is of. */

#include "binding/encoder.h"
#include "binding/ids.h"
#include "binding/text.h"

/* -- Spans ----------------------------------------------------------------------------------- */

/* An int, which the encoder has already if some id equals it. */
static inline PyObject *int_of(const Encoder *self, Py_ssize_t value)
{
    if (value >= (Py_ssize_t)self->tokens.n_ids)
        return PyLong_FromSsize_t(value);
    return int_of_id(self, (uint32_t)value);
}

/* Make a tuple for two ints, unknown to the garbage collector: ints are in no cycles.  PyTuple_New
 * registers the tuple first, which takes as long as the rest.  NOTE: from 3.14 on tuples have a
 * field that only PyTuple_New sets. */
static inline PyObject *new_pair(void)
{
#if PY_VERSION_HEX < 0x030E0000 && !defined(Py_GIL_DISABLED)
    return (PyObject *)PyObject_GC_NewVar(PyTupleObject, &PyTuple_Type, 2);
#else
    PyObject *pair = PyTuple_New(2);
    if (pair)
        PyObject_GC_UnTrack(pair);
    return pair;
#endif
}

/* A new span.  Mostly it begins where the one before ends, and the int for that is at hand. */
static PyObject *new_span(const Encoder *self, PyObject *before, Py_ssize_t start, Py_ssize_t end)
{
    PyObject *first = before ? Py_NewRef(PyTuple_GET_ITEM(before, 1)) : int_of(self, start);
    PyObject *last = int_of(self, end);
    PyObject *span = first && last ? new_pair() : NULL;
    if (!span) {
        Py_XDECREF(first);
        Py_XDECREF(last);
        return NULL;
    }
    PyTuple_SET_ITEM(span, 0, first);
    PyTuple_SET_ITEM(span, 1, last);
    return span;
}

/* Making and freeing tuples takes longer than everything else here.  So the encoder keeps the spans
 * of short tokens near the start of a text, 1.2 MB at most, and texts share them: offsets then take
 * 8 to 22 % less (benchmarks/bench_roads.py).  More starts gain nothing: the spans leave the
 * processor's cache.  A thread takes the spans out of the encoder while it uses them. */
enum { SPAN_STARTS = 2048, SPAN_LENGTHS = 8 };

struct spans {
    PyObject *spans[SPAN_STARTS * SPAN_LENGTHS]; /* by start, and by length less one */
};

static struct spans *take_spans(Encoder *self)
{
    struct spans *spans = atomic_exchange(&self->spans, NULL);
    return spans ? spans : PyMem_Calloc(1, sizeof *spans);
}

void free_spans(struct spans *spans)
{
    if (!spans)
        return;
    for (size_t i = 0; i < SPAN_STARTS * SPAN_LENGTHS; i++)
        Py_XDECREF(spans->spans[i]);
    PyMem_Free(spans);
}

static inline PyObject *span_of(const Encoder *self, struct spans *spans, PyObject *before,
                                Py_ssize_t start, Py_ssize_t end)
{
    if (!spans || start >= SPAN_STARTS || end - start > SPAN_LENGTHS || end == start)
        return new_span(self, before, start, end);
    PyObject **kept = &spans->spans[start * SPAN_LENGTHS + (end - start - 1)];
    if (!*kept)
        *kept = new_span(self, before, start, end);
    Py_XINCREF(*kept);
    return *kept;
}

/* -- Characters ------------------------------------------------------------------------------ */

/* A list that is filled with the spans of tokens. */
struct filling {
    const Encoder *encoder;
    struct spans *spans;
    PyObject *list;
    const uint32_t *ids; /* as many as the list has places */
    size_t n_ids;
    size_t length; /* of their tokens, in bytes */
    bool may_be_less; /* the ids are those of the text's beginning */
};

/* `follows` tells that the span begins where the one before it ends. */
static inline int put_span(const struct filling *filling, size_t i, bool follows, Py_ssize_t start,
                           Py_ssize_t end)
{
    PyObject *before = follows && i ? PyList_GET_ITEM(filling->list, (Py_ssize_t)i - 1) : NULL;
    PyObject *span = span_of(filling->encoder, filling->spans, before, start, end);
    if (!span)
        return -1;
    PyList_SET_ITEM(filling->list, (Py_ssize_t)i, span);
    return 0;
}

static inline size_t length_of(const struct filling *filling, size_t i)
{
    return token_length(&filling->encoder->tokens, filling->ids[i]);
}

static inline size_t utf8_width(Py_UCS4 c)
{
    return 1 + (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
}

static inline size_t utf8_length(int kind, const void *text, Py_ssize_t n)
{
    size_t length = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        length += utf8_width(PyUnicode_READ(kind, text, i));
    return length;
}

/* Fill the list for ASCII, where each byte is a character.  A token of no bytes, which no text
 * gives, is at (0, 0).  These return 0, or -1 and an exception. */
static int fill_by_bytes(const struct filling *filling)
{
    size_t start = 0;
    bool follows = false;
    for (size_t i = 0; i < filling->n_ids; i++) {
        size_t length = length_of(filling, i);
        follows = follows && length;
        size_t end = length ? start + length : 0;
        if (put_span(filling, i, follows, length ? (Py_ssize_t)start : 0, (Py_ssize_t)end) < 0)
            return -1;
        follows = length > 0;
        start += length;
    }
    return 0;
}

/* The same for any text.  It is compiled once for each `kind`.
 *
 * INVARIANT: the tokens have as many bytes as the text, or less, so that no character behind it is read. */
static inline int fill_by_characters(const struct filling *filling, int kind, const void *text)
{
    Py_ssize_t next = 0; /* the first character that no token has begun with */
    size_t left = 0;     /* bytes that the tokens so far do not have of the one before it */
    bool follows = false;
    for (size_t i = 0; i < filling->n_ids; i++) {
        size_t length = length_of(filling, i);
        Py_ssize_t start = length ? next - (left > 0) : 0;
        follows = follows && length;
        for (; left < length; next++)
            left += utf8_width(PyUnicode_READ(kind, text, next));
        left -= length;
        if (put_span(filling, i, follows, start, length ? next : 0) < 0)
            return -1;
        follows = length && !left;
    }
    return 0;
}

static inline int fill_if_equal(const struct filling *filling, int kind, PyObject *text)
{
    const void *data = PyUnicode_DATA(text);
    Py_ssize_t n = PyUnicode_GET_LENGTH(text);
    bool ascii = kind == PyUnicode_1BYTE_KIND && PyUnicode_IS_ASCII(text);
    size_t length = ascii ? (size_t)n : utf8_length(kind, data, n);
    if (filling->may_be_less ? filling->length > length : filling->length != length) {
        PyErr_SetString(PyExc_ValueError, "the ids are not those of the text");
        return -1;
    }
    return ascii ? fill_by_bytes(filling) : fill_by_characters(filling, kind, data);
}

static int fill(const struct filling *filling, PyObject *text)
{
    switch (PyUnicode_KIND(text)) {
    case PyUnicode_1BYTE_KIND:
        return fill_if_equal(filling, PyUnicode_1BYTE_KIND, text);
    case PyUnicode_2BYTE_KIND:
        return fill_if_equal(filling, PyUnicode_2BYTE_KIND, text);
    default:
        return fill_if_equal(filling, PyUnicode_4BYTE_KIND, text);
    }
}

static PyObject *spans_of(Encoder *self, PyObject *text, const uint32_t *ids, size_t n_ids,
                          size_t length, bool may_be_less)
{
    PyObject *list = PyList_New((Py_ssize_t)n_ids);
    if (!list)
        return NULL;
    struct filling filling = {self, take_spans(self), list, ids, n_ids, length, may_be_less};
    if (fill(&filling, text) < 0)
        Py_CLEAR(list);
    free_spans(atomic_exchange(&self->spans, filling.spans)); /* those of another thread, if any */
    return list;
}

/* -- Methods --------------------------------------------------------------------------------- */

const char offsets_doc[] =
    PyDoc_STR("offsets(text, ids, /)\n--\n\n"
              "Return the (start, end) of the characters that each token has bytes of.\n\n"
              "The ids may be a record of `encode_batch_recorded`, also of the first ids only.\n\n"
              "Raises:\n"
              "    KeyError: an id has no token.\n"
              "    ValueError: the ids are not those of the text.");

/* The spans of ids that a record holds. */
static PyObject *spans_of_record(Encoder *self, PyObject *text, PyObject *record)
{
    const uint32_t *ids = (const void *)PyBytes_AS_STRING(record); /* aligned for any number */
    size_t n = (size_t)PyBytes_GET_SIZE(record) / sizeof *ids, length = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= self->tokens.n_ids || self->tokens.lengths[ids[i]] == NOT_IN_SLOT) {
            PyErr_SetString(PyExc_KeyError, "the record is not of this encoder");
            return NULL;
        }
        length += token_length(&self->tokens, ids[i]);
    }
    return spans_of(self, text, ids, n, length, true);
}

PyObject *encoder_offsets(Encoder *self, PyObject *args)
{
    PyObject *text, *object;
    struct ids ids;
    if (!PyArg_ParseTuple(args, "OO", &text, &object) || check_string(text) < 0)
        return NULL;
    if (PyBytes_CheckExact(object))
        return spans_of_record(self, text, object);
    if (read_ids(&self->tokens, object, &ids) < 0)
        return NULL;
    PyObject *spans = spans_of(self, text, ids.ids, (size_t)ids.n, ids.length, false);
    release_ids(&ids);
    return spans;
}
