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
 * of short tokens near the start of a text, and texts share them: offsets take half as long, as most
 * of these spans stay in the processor's cache (benchmarks/bench_roads.py).  Documents of 2 to 10 KB
 * make 4 MB of them; there are never more than 8.  A thread takes the spans out of the encoder while
 * it uses them. */
enum { SPAN_STARTS = 8192, SPAN_LENGTHS = 12 };

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

/* Where a span is kept; NULL if it is not. */
static inline PyObject **place_of(struct spans *spans, Py_ssize_t start, Py_ssize_t end)
{
    if (!spans || start >= SPAN_STARTS || end - start > SPAN_LENGTHS || end == start)
        return NULL;
    return &spans->spans[start * SPAN_LENGTHS + (end - start - 1)];
}

/* -- Characters ------------------------------------------------------------------------------ */

/* How many characters begin in a token. */
static inline size_t characters_of(const struct tokens *tokens, uint32_t id)
{
    size_t n = tokens->characters[id] & MANY_CHARACTERS;
    return n < MANY_CHARACTERS ? n : count_characters(tokens, id);
}

enum { BLOCK = 64 }; /* tokens whose spans are fetched together */

/* Some of a text's tokens, from one on. */
struct block {
    Py_ssize_t n;
    Py_ssize_t starts[BLOCK], ends[BLOCK];
    PyObject **places[BLOCK];
};

/* Find out where tokens are, from the character `next` on that has not begun, and return the next.
 * Where a character is parted between tokens, all of them have it.  A token of no bytes, which no
 * text gives, is at (0, 0).
 *
 * NOTE: this never looks at the text.  If the ids are not those of it, the spans are not either. */
static Py_ssize_t locate(const struct tokens *tokens, struct spans *spans, const uint32_t *ids,
                         Py_ssize_t next, struct block *block)
{
    for (Py_ssize_t i = 0; i < block->n; i++) {
        uint8_t characters = tokens->characters[ids[i]];
        Py_ssize_t start = next - ((characters & BEGINS_INSIDE) && next);
        next += (Py_ssize_t)characters_of(tokens, ids[i]);
        block->starts[i] = characters ? start : 0;
        block->ends[i] = characters ? next : 0;
        block->places[i] = place_of(spans, block->starts[i], block->ends[i]);
#if defined(__GNUC__)
        __builtin_prefetch(block->places[i]);
#endif
    }
    return next;
}

/* Put the spans of a block into a list. */
static int put_spans(const Encoder *self, const struct block *block, PyObject **items)
{
#if defined(__GNUC__)
    for (Py_ssize_t i = 0; i < block->n; i++)
        if (block->places[i])
            __builtin_prefetch(*block->places[i], 1);
#endif
    for (Py_ssize_t i = 0; i < block->n; i++) {
        PyObject **place = block->places[i];
        if (place && *place) {
            items[i] = Py_NewRef(*place);
            continue;
        }
        bool follows = i && block->starts[i] == block->ends[i - 1];
        PyObject *before = follows ? items[i - 1] : NULL;
        items[i] = new_span(self, before, block->starts[i], block->ends[i]);
        if (!items[i])
            return -1;
        if (place)
            *place = Py_NewRef(items[i]);
    }
    return 0;
}

/* Fill a list with the spans of tokens.  Returns 0, or -1 and an exception. */
static int fill(const Encoder *self, struct spans *spans, PyObject *list, const uint32_t *ids)
{
    struct block block;
    Py_ssize_t next = 0, n = PyList_GET_SIZE(list);
    for (Py_ssize_t i = 0; i < n; i += BLOCK) {
        block.n = n - i < BLOCK ? n - i : BLOCK;
        next = locate(&self->tokens, spans, ids + i, next, &block);
        if (put_spans(self, &block, ((PyListObject *)list)->ob_item + i) < 0)
            return -1;
    }
    return 0;
}

static PyObject *spans_of(Encoder *self, const uint32_t *ids, size_t n_ids)
{
    PyObject *list = PyList_New((Py_ssize_t)n_ids);
    if (!list)
        return NULL;
    struct spans *spans = take_spans(self);
    if (fill(self, spans, list, ids) < 0)
        Py_CLEAR(list);
    free_spans(atomic_exchange(&self->spans, spans)); /* those of another thread, if any */
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

static PyObject *raise_other_text(void)
{
    PyErr_SetString(PyExc_ValueError, "the ids are not those of the text");
    return NULL;
}

/* The spans of ids that a record holds. */
static PyObject *spans_of_record(Encoder *self, PyObject *text, PyObject *record)
{
    const uint32_t *ids = (const void *)PyBytes_AS_STRING(record); /* aligned for any number */
    size_t n = (size_t)PyBytes_GET_SIZE(record) / sizeof *ids, characters = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= self->tokens.n_ids || self->tokens.lengths[ids[i]] == NOT_IN_SLOT) {
            PyErr_SetString(PyExc_KeyError, "the record is not of this encoder");
            return NULL;
        }
        characters += characters_of(&self->tokens, ids[i]);
    }
    if (characters > (size_t)PyUnicode_GET_LENGTH(text))
        return raise_other_text();
    return spans_of(self, ids, n);
}

static size_t utf8_length(PyObject *text)
{
    int kind = (int)PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    size_t length = 0;
    for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text); i++) {
        Py_UCS4 c = PyUnicode_READ(kind, data, i);
        length += 1 + (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
    }
    return length;
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
    PyObject *spans = ids.length == utf8_length(text) ? spans_of(self, ids.ids, (size_t)ids.n)
                                                      : raise_other_text();
    release_ids(&ids);
    return spans;
}
