/* Which characters each token comes from. */

#include "binding/encoder.h"
#include "binding/ids.h"
#include "binding/sources.h"
#include "binding/text.h"

/* -- Spans ----------------------------------------------------------------------------------- */

/* An int object; the encoder already has it if some id is equal to it. */
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

/* A new span.  Usually it begins where the one before ends, and that int is at hand. */
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
 * of short tokens near the start of a text, and texts share them: offsets take a third less time, as most
 * of these spans stay in the processor's cache (benchmarks/bench_roads.py).  New tuples also let the
 * garbage collector run, which looks at every item of every new list; so starts go as far as most
 * documents of 2 to 10 KB, which make 6 MB of spans.  There are never more than 12 MB.  A thread takes
 * the spans out of the encoder while it uses them. */
enum { SPAN_STARTS = 12288, SPAN_LENGTHS = 12 };

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

/* Where a span is kept; NULL if it isn't kept. */
static inline PyObject **place_of(struct spans *spans, Py_ssize_t start, Py_ssize_t end)
{
    if (!spans || start < 0 || start >= SPAN_STARTS || end - start > SPAN_LENGTHS || end <= start)
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

/* How to treat white space at the ends of tokens: keep it in their spans, leave it out, or leave it
 * out except one space at the start of the text, or also at the start of the first token. */
enum trimming { KEEP_SPACES, TRIM, TRIM_UNLESS_AT_START, TRIM_UNLESS_FIRST };

/* The bytes of a token, and how many there are. */
static inline const uint8_t *bytes_of(const struct tokens *tokens, uint32_t id, Py_ssize_t *length)
{
    const uint8_t *slot = tokens->by_slot + (size_t)id * SLOT_BYTES;
    *length = (Py_ssize_t)token_length(tokens, id);
    return slot[IN_SLOT] <= IN_SLOT ? slot : tokens->bytes + tokens->by_id[id].at;
}

/* Leave the spaces at the ends of a token out of its span, as HuggingFace's tokenizers does
 * (process_offsets): a space that was put before the text is not part of it. */
static void trim_span(const struct tokens *tokens, uint32_t id, bool keep, Py_ssize_t *start,
                      Py_ssize_t *end)
{
    Py_ssize_t length, leading = 0, trailing = 0;
    const uint8_t *bytes = bytes_of(tokens, id, &length);
    while (leading < length && bytes[leading] == ' ')
        leading++;
    while (trailing < length && bytes[length - 1 - trailing] == ' ')
        trailing++;
    if (leading == 1 && keep)
        leading = 0;
    *start = *end - *start < leading ? *end : *start + leading;
    if (*end >= trailing)
        *end = *end - *start < trailing ? *start : *end - trailing;
}

enum { BLOCK = 64 }; /* tokens whose spans are fetched together */

/* Some of a text's tokens, from one on. */
struct block {
    Py_ssize_t n;
    Py_ssize_t starts[BLOCK], ends[BLOCK];
    PyObject **places[BLOCK];
};

/* Where the characters of a text that was changed come from. */
struct runs {
    const struct source_run *run;  /* the one looked at last; NULL if the text was not changed */
    const struct source_run *last; /* NOTE: the limit, whatever somebody writes into the runs */
    Py_ssize_t begin;              /* of the run's first character */
};

/* Find how far a character's source is after the source of its run's first character.  Places never
 * decrease from call to call. */
static inline Py_ssize_t find_run(struct runs *runs, Py_ssize_t at)
{
    while (runs->run < runs->last && at - runs->begin >= runs->run->length)
        runs->begin += runs->run++->length;
    return runs->run->copied ? at - runs->begin : 0;
}

/* How places in the text become spans. */
struct how {
    struct runs runs;
    enum trimming trimming;
    bool first; /* the next token is the first */
};

/* Find out where tokens are, starting at character `next`, which has not begun, and return the next
 * one.  If a character is divided among several tokens, all of them get it.  A token without bytes,
 * which no text gives, is at (0, 0).
 *
 * NOTE: this never looks at the text.  If the ids don't match the text, the spans don't either. */
static Py_ssize_t locate(const struct tokens *tokens, struct spans *spans, struct how *how,
                         const uint32_t *ids, Py_ssize_t next, struct block *block)
{
    struct runs *runs = &how->runs;
    for (Py_ssize_t i = 0; i < block->n; i++) {
        uint8_t characters = tokens->characters[ids[i]];
        Py_ssize_t start = next - ((characters & BEGINS_INSIDE) && next);
        next += (Py_ssize_t)characters_of(tokens, ids[i]);
        block->starts[i] = characters ? start : 0;
        block->ends[i] = characters ? next : 0;
        if (runs->run && start < next) {
            Py_ssize_t by = find_run(runs, start);
            block->starts[i] = runs->run->start + by;
            by = find_run(runs, next - 1);
            block->ends[i] = runs->run->end + by;
        }
        if (how->trimming) {
            bool keep = how->trimming > TRIM && block->starts[i] == 0;
            keep |= how->trimming == TRIM_UNLESS_FIRST && i == 0 && how->first;
            trim_span(tokens, ids[i], keep, &block->starts[i], &block->ends[i]);
        }
        block->places[i] = place_of(spans, block->starts[i], block->ends[i]);
#if defined(__GNUC__)
        __builtin_prefetch(block->places[i]);
#endif
    }
    how->first = false;
    return next;
}

/* A span, which may be kept, and `before` the one before it, or NULL if it does not end where this one
 * starts. */
static inline PyObject *span_at(const Encoder *self, PyObject **place, PyObject *before,
                                Py_ssize_t start, Py_ssize_t end)
{
    if (place && *place)
        return Py_NewRef(*place);
    PyObject *span = new_span(self, before, start, end);
    if (span && place)
        *place = Py_NewRef(span);
    return span;
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
        bool follows = i && block->starts[i] == block->ends[i - 1];
        PyObject *before = follows ? items[i - 1] : NULL;
        items[i] = span_at(self, block->places[i], before, block->starts[i], block->ends[i]);
        if (!items[i])
            return -1;
    }
    return 0;
}

/* Fill a list with the spans of tokens.  Returns 0, or -1 and an exception. */
static int fill(const Encoder *self, struct spans *spans, struct how how, PyObject *list,
                const uint32_t *ids)
{
    struct block block;
    Py_ssize_t next = 0, n = PyList_GET_SIZE(list);
    for (Py_ssize_t i = 0; i < n; i += BLOCK) {
        block.n = n - i < BLOCK ? n - i : BLOCK;
        next = locate(&self->tokens, spans, &how, ids + i, next, &block);
        if (put_spans(self, &block, ((PyListObject *)list)->ob_item + i) < 0)
            return -1;
    }
    return 0;
}

static PyObject *spans_of(Encoder *self, struct how how, const uint32_t *ids, size_t n_ids)
{
    PyObject *list = PyList_New((Py_ssize_t)n_ids);
    if (!list)
        return NULL;
    struct spans *spans = take_spans(self);
    if (fill(self, spans, how, list, ids) < 0)
        Py_CLEAR(list);
    free_spans(atomic_exchange(&self->spans, spans)); /* another thread's, if any */
    return list;
}

/* -- Methods --------------------------------------------------------------------------------- */

const char offsets_doc[] =
    PyDoc_STR("offsets(text, ids, runs=None, trimming=0, /)\n--\n\n"
              "Return the (start, end) of the characters that each token comes from.\n\n"
              "The ids may be a record of `encode_batch_recorded`, also of the first ids only.\n\n"
              "If the text was made from another, `runs` say where its characters come from, and so\n"
              "do the offsets: an `array` of \"i\" with four numbers for each run, its length, the\n"
              "start and end of the source of its first character, and 1 if each character comes\n"
              "from right after the one before, 0 if all come from the same place.\n\n"
              "`trimming` leaves out spaces at the ends of tokens: 1 all; 2 all except one at the\n"
              "start of the text; 3 also except one at the start of the first token.\n\n"
              "Raises:\n"
              "    KeyError: an id has no token.\n"
              "    ValueError: the ids or the runs don't match the text.");

static PyObject *raise_other_text(void)
{
    PyErr_SetString(PyExc_ValueError, "the ids don't match the text");
    return NULL;
}

/* The spans of ids in a record. */
static PyObject *spans_of_record(Encoder *self, PyObject *text, PyObject *record)
{
    const uint32_t *ids = (const void *)PyBytes_AS_STRING(record); /* aligned for any number */
    size_t n = (size_t)PyBytes_GET_SIZE(record) / sizeof *ids, characters = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= self->tokens.n_ids || self->tokens.lengths[ids[i]] == NOT_IN_SLOT) {
            PyErr_SetString(PyExc_KeyError, "the record comes from another encoder");
            return NULL;
        }
        characters += characters_of(&self->tokens, ids[i]);
    }
    if (characters > (size_t)PyUnicode_GET_LENGTH(text))
        return raise_other_text();
    return spans_of(self, (struct how){{NULL, NULL, 0}, KEEP_SPACES, true}, ids, n);
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

bool sources_fit(const struct source_run *runs, Py_ssize_t n_runs, Py_ssize_t n)
{
    bool fits = true;
    for (Py_ssize_t i = 0; fits && i < n_runs; i++) {
        fits = runs[i].length >= 0 && runs[i].length <= n && runs[i].start >= 0 &&
               runs[i].start <= runs[i].end && runs[i].end <= INT32_MAX - runs[i].length;
        n -= runs[i].length;
    }
    return fits && !n;
}

int get_sources(PyObject *object, Py_ssize_t n, Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    const Py_ssize_t size = sizeof(struct source_run);
    if (view->format && !strcmp(view->format, "i") && view->itemsize == sizeof(int32_t) &&
        view->len % size == 0 && sources_fit(view->buf, view->len / size, n))
        return 0;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "the runs don't match the text");
    return -1;
}

static PyObject *spans_by_runs(Encoder *self, PyObject *text, const struct ids *ids, PyObject *object,
                               enum trimming trimming)
{
    struct how how = {{NULL, NULL, 0}, trimming, true};
    Py_buffer view;
    if (object == Py_None)
        return spans_of(self, how, ids->ids, (size_t)ids->n);
    if (get_sources(object, PyUnicode_GET_LENGTH(text), &view) < 0)
        return NULL;
    if (view.len) {
        how.runs.run = view.buf;
        how.runs.last = how.runs.run + view.len / (Py_ssize_t)sizeof *how.runs.run - 1;
    }
    PyObject *spans = spans_of(self, how, ids->ids, (size_t)ids->n);
    PyBuffer_Release(&view);
    return spans;
}

PyObject *encoder_offsets(Encoder *self, PyObject *args)
{
    PyObject *text, *object, *runs = Py_None;
    int trimming = KEEP_SPACES;
    struct ids ids;
    if (!PyArg_ParseTuple(args, "OO|Oi", &text, &object, &runs, &trimming) || check_string(text) < 0)
        return NULL;
    if (trimming < KEEP_SPACES || trimming > TRIM_UNLESS_FIRST) {
        PyErr_SetString(PyExc_ValueError, "trimming must be from 0 to 3");
        return NULL;
    }
    if (PyBytes_CheckExact(object) && runs == Py_None && !trimming)
        return spans_of_record(self, text, object);
    if (read_ids(&self->tokens, object, &ids) < 0)
        return NULL;
    PyObject *spans = ids.length == utf8_length(text) ? spans_by_runs(self, text, &ids, runs, trimming)
                                                      : raise_other_text();
    release_ids(&ids);
    return spans;
}
