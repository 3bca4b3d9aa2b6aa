/* Python's side of training: the type `PretokenCounter`, and the functions `learn_merges` and
 * `learn_joins`.
 *
 * An OverflowError says that something is too large for this engine, not that it is wrong: the
 * Python engine takes it. */

#include "binding/training.h"

#include <pythread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/processor.h"
#include "binding/encoder.h"
#include "binding/finder.h"
#include "binding/runs.h"
#include "binding/scan.h"
#include "binding/text.h"
#include "scan/normal.h"
#include "train/count.h"
#include "train/learn.h"

enum {
    KEPT_TEXT = 1 << 23, /* bytes of UTF-8 for which a counter keeps its room */
    SLICE = 1 << 21,     /* symbols looked at before Python is asked whether to go on */
};

/* -- The counter object ---------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *pattern; /* the cutter was made from it, and may point into it */
    struct cutter cutter;
    bool use_avx2; /* supported by the processor, and wanted */
    uint64_t seed;

    /* Held by the one thread that uses the counter.
     * INVARIANT: while it is held, no Python code runs in that thread, so it never waits for
     * itself; a thread that waits for it doesn't hold the interpreter's lock. */
    PyThread_type_lock lock;
    struct counter *counter; /* NULL until it is needed */
} PretokenCounter;

static void enter(PretokenCounter *self)
{
    if (PyThread_acquire_lock(self->lock, NOWAIT_LOCK))
        return;
    Py_BEGIN_ALLOW_THREADS;
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    Py_END_ALLOW_THREADS;
}

static void leave(PretokenCounter *self)
{
    PyThread_release_lock(self->lock);
}

/* The counter, ready to count; NULL if memory is short.  Only after `enter`. */
static struct counter *need_counter(PretokenCounter *self)
{
    if (!self->counter)
        self->counter = counter_new(self->seed);
    /* NOTE: one that found no memory for its room before must find it now, or not count. */
    return self->counter && counter_finish(self->counter) == 0 ? self->counter : NULL;
}

static void drop_counter(PretokenCounter *self)
{
    counter_free(self->counter);
    self->counter = NULL;
}

static void counter_dealloc(PretokenCounter *self)
{
    PyTypeObject *type = Py_TYPE(self);
    drop_counter(self);
    if (self->lock)
        PyThread_free_lock(self->lock);
    Py_XDECREF(self->pattern);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

PyDoc_STRVAR(counter_doc,
             "PretokenCounter(pattern=None, portable=False)\n--\n\n"
             "Counts pre-tokens.\n\n"
             "Threads may share one; they take turns.  After an error, only a part has been\n"
             "counted.\n\n"
             "Args:\n"
             "    pattern: the name of a built-in split pattern, or an automaton; None if only\n"
             "        count_pretokens is used.\n"
             "    portable: don't use this processor's special instructions.");

static PyObject *counter_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"pattern", "portable", NULL};
    PyObject *pattern = Py_None;
    int portable = 0;
    struct cutter cutter;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Op:PretokenCounter", names, &pattern,
                                     &portable))
        return NULL;
    if (cutter_of(pattern, portable, &cutter) < 0)
        return NULL;
    PretokenCounter *self = (PretokenCounter *)type->tp_alloc(type, 0); /* all zero */
    if (!self)
        return NULL;
    self->pattern = Py_NewRef(pattern);
    self->cutter = cutter;
    self->use_avx2 = has_avx2() && !portable;
    self->lock = PyThread_allocate_lock();
    if (!self->lock || get_seed(&self->seed) < 0) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* -- Counting text --------------------------------------------------------------------------- */

/* Why counting ended. */
enum outcome { COUNTED, OUT_OF_MEMORY, REFUSED };

/* The UTF-8 of a string.  NULL if memory is short, or, with *size 1, if there is a surrogate. */
static const uint8_t *counter_utf8(struct counter *counter, PyObject *string, bool use_avx2,
                                   size_t *size)
{
    size_t length = (size_t)PyUnicode_GET_LENGTH(string), kind = PyUnicode_KIND(string);
    *size = length;
    if (PyUnicode_IS_ASCII(string))
        return PyUnicode_DATA(string);
    *size = 0;
    /* Latin-1 takes 2 bytes a character at most, UCS-2 3, UCS-4 4; and four are written at once. */
    if (counter_reserve_text(counter, length * (kind == 4 ? 4 : kind + 1) + 4) < 0)
        return NULL;
    uint8_t *end = write_utf8(string, counter->text, use_avx2);
    *size = end ? (size_t)(end - counter->text) : 1;
    return end ? counter->text : NULL;
}

/* Count strings, starting with the first; *at is where it ended.  A string never changes, and the
 * tuple keeps each alive, so this needs no interpreter's lock. */
static enum outcome count_strings(PretokenCounter *self, struct cutter cutter, PyObject *texts,
                                  Py_ssize_t *at)
{
    struct counter *counter = need_counter(self);
    if (!counter)
        return OUT_OF_MEMORY;
    for (; *at < PyTuple_GET_SIZE(texts); ++*at) {
        size_t size;
        const uint8_t *text =
            counter_utf8(counter, PyTuple_GET_ITEM(texts, *at), self->use_avx2, &size);
        if (!text && size)
            return REFUSED;
        if (!text || (can_cut(cutter) ? count_text(counter, cutter, text, size)
                                      : count_whole(counter, text, size)) < 0)
            return OUT_OF_MEMORY;
    }
    counter_trim(counter, KEPT_TEXT);
    return counter_finish(counter) < 0 ? OUT_OF_MEMORY : COUNTED;
}

static PyObject *count_tuple(PretokenCounter *self, PyObject *texts, struct cutter cutter)
{
    enum outcome outcome;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(texts); i++)
        if (check_string(PyTuple_GET_ITEM(texts, i)) < 0)
            return NULL;
    enter(self);
    Py_BEGIN_ALLOW_THREADS;
    outcome = count_strings(self, cutter, texts, &at);
    Py_END_ALLOW_THREADS;
    leave(self);
    if (outcome == COUNTED)
        Py_RETURN_NONE;
    if (outcome == REFUSED)
        raise_surrogate(PyTuple_GET_ITEM(texts, at));
    else
        PyErr_NoMemory();
    return NULL;
}

static PyObject *count_list(PretokenCounter *self, PyObject *list, struct cutter cutter)
{
    if (!PyList_Check(list)) {
        PyErr_Format(PyExc_TypeError, "texts must be a list, got %.100s", Py_TYPE(list)->tp_name);
        return NULL;
    }
    PyObject *texts = tuple_of_list(list); /* the list may change; the tuple does not */
    PyObject *result = texts ? count_tuple(self, texts, cutter) : NULL;
    Py_XDECREF(texts);
    return result;
}

/* Whether the counter has a scanner; if not, an exception is set. */
static bool has_cutter(const PretokenCounter *self)
{
    if (!can_cut(self->cutter))
        PyErr_SetString(PyExc_TypeError, "no scanner for this pattern: use count_pretokens");
    return can_cut(self->cutter);
}

PyDoc_STRVAR(count_doc,
             "count(texts, /)\n--\n\n"
             "Count the pre-tokens of texts, a list of str, each cut by itself.");

static PyObject *counter_count(PretokenCounter *self, PyObject *texts)
{
    return has_cutter(self) ? count_list(self, texts, self->cutter) : NULL;
}

PyDoc_STRVAR(count_pretokens_doc,
             "count_pretokens(pretokens, /)\n--\n\n"
             "Count text that is already cut, a list of str.  Empty strings don't count.");

static PyObject *counter_count_pretokens(PretokenCounter *self, PyObject *pretokens)
{
    return count_list(self, pretokens, (struct cutter){0});
}

/* -- Counting UTF-8 -------------------------------------------------------------------------- */

struct part {
    size_t start, end;
};

/* Bytes to count, which must be UTF-8. */
struct encoded {
    const uint8_t *text;
    size_t size;
    bool only_nfc;      /* leave out what NFC may change */
    struct matches cuts; /* strings that cut the text and aren't counted */
    struct part *left;  /* parts that were left out; room for all */
    size_t n_left;
};

static enum outcome count_part(PretokenCounter *self, struct encoded *given, struct part part)
{
    const uint8_t *text = given->text + part.start;
    size_t size = part.end - part.start;
    enum utf8_kind kind = utf8_kind(text, size);
    if (kind == NOT_UTF8)
        return REFUSED;
    if (kind == UTF8 && given->only_nfc)
        given->left[given->n_left++] = part;
    else if (count_text(self->counter, self->cutter, text, size) < 0)
        return OUT_OF_MEMORY;
    return COUNTED;
}

/* Count the text between the strings that `finder` finds, if there is one.  Doesn't need the
 * interpreter's lock. */
static enum outcome count_encoded(PretokenCounter *self, struct encoded *given,
                                  const struct finder *finder)
{
    if (!need_counter(self) ||
        (finder && finder_find(finder, given->text, 1, 0, given->size, &given->cuts) < 0))
        return OUT_OF_MEMORY;
    const struct matches *cuts = &given->cuts;
    given->left = malloc((cuts->n + 1) * sizeof *given->left);
    enum outcome outcome = given->left ? COUNTED : OUT_OF_MEMORY;
    size_t start = 0;
    for (size_t i = 0; i <= cuts->n && outcome == COUNTED; i++) {
        size_t end = i < cuts->n ? cuts->items[i].start : given->size;
        if (start < end)
            outcome = count_part(self, given, (struct part){start, end});
        if (i < cuts->n)
            start = end + finder->lengths[cuts->items[i].string];
    }
    return outcome == COUNTED && counter_finish(self->counter) < 0 ? OUT_OF_MEMORY : outcome;
}

static PyObject *list_of_parts(const struct encoded *given)
{
    PyObject *list = PyList_New((Py_ssize_t)given->n_left);
    for (size_t i = 0; list && i < given->n_left; i++) {
        const struct part *part = &given->left[i];
        PyObject *pair = Py_BuildValue("(nn)", (Py_ssize_t)part->start, (Py_ssize_t)part->end);
        if (pair)
            PyList_SET_ITEM(list, (Py_ssize_t)i, pair);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *answer_encoded(const struct encoded *given, enum outcome outcome)
{
    if (outcome == COUNTED)
        return list_of_parts(given);
    if (outcome == OUT_OF_MEMORY)
        return PyErr_NoMemory();
    Py_XDECREF(PyUnicode_DecodeUTF8((const char *)given->text, (Py_ssize_t)given->size, NULL));
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the finder's strings must be whole characters");
    return NULL;
}

PyDoc_STRVAR(count_utf8_doc,
             "count_utf8(text, finder=None, only_nfc=False, /)\n--\n\n"
             "Count the pre-tokens of a text in UTF-8, bytes that do not change.\n\n"
             "Args:\n"
             "    finder: a Finder of strings that cut the text, and are not counted.  It looks for\n"
             "        bytes: each character of its strings is one, as in Latin-1.\n"
             "    only_nfc: whether to leave out what NFC may change.\n\n"
             "Returns:\n"
             "    The (start, end) of each part, between two such strings, that is left out.\n\n"
             "Raises:\n"
             "    UnicodeDecodeError: it is not UTF-8.");

static PyObject *counter_count_utf8(PretokenCounter *self, PyObject *args)
{
    Py_buffer buffer;
    PyObject *strings = Py_None;
    int only_nfc = 0;
    if (!has_cutter(self) || !PyArg_ParseTuple(args, "y*|Op", &buffer, &strings, &only_nfc))
        return NULL;
    const struct finder *finder = finder_of(strings);
    PyObject *answer = NULL;
    if (finder || strings == Py_None) {
        struct encoded given = {
            .text = buffer.buf, .size = (size_t)buffer.len, .only_nfc = only_nfc};
        enum outcome outcome;
        enter(self);
        Py_BEGIN_ALLOW_THREADS;
        outcome = count_encoded(self, &given, finder);
        Py_END_ALLOW_THREADS;
        leave(self);
        answer = answer_encoded(&given, outcome);
        free(given.cuts.items);
        free(given.left);
    } else {
        PyErr_SetString(PyExc_TypeError, "finder must be a Finder or None");
    }
    PyBuffer_Release(&buffer);
    return answer;
}

/* -- The sum --------------------------------------------------------------------------------- */

PyDoc_STRVAR(add_doc,
             "add(other, /)\n--\n\n"
             "Add the counts of another PretokenCounter, which forgets them.");

static PyObject *counter_add(PretokenCounter *self, PyObject *object)
{
    if (Py_TYPE(object) != Py_TYPE(self)) {
        PyErr_Format(PyExc_TypeError, "expected a PretokenCounter, got %.100s",
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    PretokenCounter *other = (PretokenCounter *)object;
    enter(other); /* one at a time: a thread that waits here holds no other lock */
    struct counter *counts = other->counter;
    other->counter = NULL;
    leave(other);
    int status = 0;
    enter(self);
    if (!self->counter) {
        self->counter = counts;
    } else if (counts) {
        if (byte_map_size(&self->counter->map) < byte_map_size(&counts->map)) {
            struct counter *fewer = self->counter;
            self->counter = counts;
            counts = fewer;
        }
        Py_BEGIN_ALLOW_THREADS;
        status = byte_map_add(&self->counter->map, &counts->map);
        /* Whatever is counted next needs room. */
        if (status == 0)
            status = counter_finish(self->counter);
        if (status < 0)
            drop_counter(self); /* it may be added in part */
        counter_free(counts);
        Py_END_ALLOW_THREADS;
    }
    leave(self);
    if (status < 0)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static int add_item(PyObject *dict, const uint8_t *bytes, size_t length, uint64_t number)
{
    PyObject *key = PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)length);
    PyObject *value = key ? PyLong_FromUnsignedLongLong(number) : NULL;
    int status = value ? PyDict_SetItem(dict, key, value) : -1;
    Py_XDECREF(key);
    Py_XDECREF(value);
    return status;
}

/* Fill a dict that nobody else has: no Python code runs, as keys are bytes. */
static int add_longs(PyObject *dict, const struct byte_map *map)
{
    for (size_t i = 0; map->longs && i < (size_t)1 << map->long_bits; i++) {
        const struct long_item *item = &map->longs[i];
        if (item->length &&
            add_item(dict, map->bytes + item->at, item->length, item->number) < 0)
            return -1;
    }
    return 0;
}

static int add_shorts(PyObject *dict, const struct byte_map *map)
{
    uint8_t bytes[16];
    for (size_t i = 0; i < (size_t)1 << map->short_bits; i++) {
        const struct short_item *item = &map->shorts[i];
        if (item->key.high &&
            add_item(dict, bytes, short_bytes(item->key, bytes), item->number) < 0)
            return -1;
    }
    return 0;
}

static PyObject *make_dict(PretokenCounter *self, bool take)
{
    PyObject *dict = PyDict_New();
    if (!dict)
        return NULL;
    int status = 0;
    enter(self);
    if (self->counter) {
        struct byte_map *map = &self->counter->map;
        status = add_longs(dict, map);
        if (take)
            byte_map_drop_longs(map);
        if (status == 0)
            status = add_shorts(dict, map);
        if (take)
            drop_counter(self);
    }
    leave(self);
    if (status < 0)
        Py_CLEAR(dict);
    return dict;
}

PyDoc_STRVAR(to_dict_doc,
             "to_dict()\n--\n\nReturn all counts: pre-token -> count, a dict of bytes.");

static PyObject *counter_to_dict(PretokenCounter *self, PyObject *Py_UNUSED(ignored))
{
    return make_dict(self, false);
}

PyDoc_STRVAR(take_doc,
             "take()\n--\n\nReturn all counts as to_dict does, and forget them: this takes less\n"
             "memory.");

static PyObject *counter_take(PretokenCounter *self, PyObject *Py_UNUSED(ignored))
{
    return make_dict(self, true);
}

static Py_ssize_t counter_length(PretokenCounter *self)
{
    enter(self);
    size_t size = self->counter ? byte_map_size(&self->counter->map) : 0;
    leave(self);
    return (Py_ssize_t)size;
}

PyDoc_STRVAR(items_doc, "items()\n--\n\nReturn the items of to_dict().");

static PyObject *counter_items(PretokenCounter *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *dict = make_dict(self, false);
    PyObject *items = dict ? PyDict_Items(dict) : NULL;
    Py_XDECREF(dict);
    return items;
}

static int append_number(PyObject *list, uint64_t number)
{
    PyObject *value = PyLong_FromUnsignedLongLong(number);
    int status = value ? PyList_Append(list, value) : -1;
    Py_XDECREF(value);
    return status;
}

static int append_numbers(PyObject *list, const struct byte_map *map)
{
    for (size_t i = 0; map->longs && i < (size_t)1 << map->long_bits; i++)
        if (map->longs[i].length && append_number(list, map->longs[i].number) < 0)
            return -1;
    for (size_t i = 0; map->shorts && i < (size_t)1 << map->short_bits; i++)
        if (map->shorts[i].key.high && append_number(list, map->shorts[i].number) < 0)
            return -1;
    return 0;
}

PyDoc_STRVAR(values_doc, "values()\n--\n\nReturn the count of each pre-token, in no order.");

static PyObject *counter_values(PretokenCounter *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *list = PyList_New(0);
    if (!list)
        return NULL;
    enter(self);
    if (self->counter && append_numbers(list, &self->counter->map) < 0)
        Py_CLEAR(list);
    leave(self);
    return list;
}

static PyMethodDef counter_methods[] = {
    {"items", (PyCFunction)counter_items, METH_NOARGS, items_doc},
    {"values", (PyCFunction)counter_values, METH_NOARGS, values_doc},
    {"count", (PyCFunction)counter_count, METH_O, count_doc},
    {"count_pretokens", (PyCFunction)counter_count_pretokens, METH_O, count_pretokens_doc},
    {"count_utf8", (PyCFunction)counter_count_utf8, METH_VARARGS, count_utf8_doc},
    {"add", (PyCFunction)counter_add, METH_O, add_doc},
    {"to_dict", (PyCFunction)counter_to_dict, METH_NOARGS, to_dict_doc},
    {"take", (PyCFunction)counter_take, METH_NOARGS, take_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot counter_slots[] = {
    {Py_tp_doc, (void *)counter_doc},
    {Py_tp_new, (void *)counter_make},
    {Py_tp_dealloc, (void *)counter_dealloc},
    {Py_tp_methods, counter_methods},
    {Py_sq_length, (void *)counter_length},
    {0, NULL},
};

static PyType_Spec counter_spec = {
    .name = "_bpe_tokenizer.native.PretokenCounter",
    .basicsize = sizeof(PretokenCounter),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = counter_slots,
};

/* -- Learning: the request ------------------------------------------------------------------- */

struct question {
    PyObject *counts, *forbidden, *advance;
    const uint8_t *alphabet;
    long long n_tokens, min_frequency, limit;
};

/* Read an int; one that is too large or too small for a count becomes the largest or smallest
 * count. */
static int read_number(PyObject *object, void *number)
{
    int overflow;
    if (!PyLong_Check(object)) {
        PyErr_Format(PyExc_TypeError, "expected an int, got %.100s", Py_TYPE(object)->tp_name);
        return 0;
    }
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    *(long long *)number = overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN : value;
    return 1;
}

/* The limit of a token's length: no limit if it is None or 0. */
static int read_limit(PyObject *object, void *limit)
{
    long long value = 0;
    if (object != Py_None && !read_number(object, &value))
        return 0;
    *(long long *)limit = value ? value : INT64_MAX;
    return 1;
}

/* A dict or a PretokenCounter. */
static int read_counts(PyObject *object, void *counts)
{
    /* Nothing else has this function: the type itself is hard to come by here. */
    if (!PyDict_Check(object) && Py_TYPE(object)->tp_dealloc != (destructor)counter_dealloc) {
        PyErr_Format(PyExc_TypeError, "counts must be a dict or a PretokenCounter, got %.100s",
                     Py_TYPE(object)->tp_name);
        return 0;
    }
    *(PyObject **)counts = object;
    return 1;
}

static int read_alphabet(PyObject *object, void *alphabet)
{
    bool seen[BASE_TOKENS] = {false};
    bool all = PyBytes_Check(object) && PyBytes_GET_SIZE(object) == BASE_TOKENS;
    const uint8_t *bytes = all ? (const uint8_t *)PyBytes_AS_STRING(object) : NULL;
    for (int i = 0; all && i < BASE_TOKENS; i++) {
        all = !seen[bytes[i]];
        seen[bytes[i]] = true;
    }
    if (!all) {
        PyErr_SetString(PyExc_ValueError, "alphabet must be all 256 bytes, each once");
        return 0;
    }
    *(const uint8_t **)alphabet = bytes;
    return 1;
}

static int read_question(PyObject *args, struct question *question)
{
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&O!O:learn_merges", read_counts, &question->counts,
                          read_alphabet, &question->alphabet, read_number, &question->n_tokens,
                          read_number, &question->min_frequency, read_limit, &question->limit,
                          &PyFrozenSet_Type, &question->forbidden, &question->advance))
        return -1;
    if (question->n_tokens > (long long)MOST_TOKENS) {
        PyErr_SetString(PyExc_OverflowError, "too many tokens for this engine");
        return -1;
    }
    return 0;
}

/* -- Learning: the words --------------------------------------------------------------------- */

/* Read one item of the counts.  Returns 1 for a word, 0 if it has no pairs to count, or -1 and an
 * exception if it is invalid. */
static int read_item(PyObject *key, PyObject *value, int64_t *count)
{
    if (!PyBytes_Check(key) || !PyLong_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "counts must be a dict of bytes and int");
        return -1;
    }
    int overflow; /* reading an int runs no Python code */
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (PyBytes_GET_SIZE(key) < 2 || overflow < 0 || (!overflow && number <= 0))
        return 0;
    *count = overflow ? INT64_MAX : number;
    return 1;
}

/* The room that the words looked at so far take. */
struct measure {
    size_t n_cells;
    int64_t left; /* symbols that may still be added */
};

/* Returns 0, or -1 and an exception if a word is too long, or its count too large. */
static int measure_word(struct measure *measure, size_t length, int64_t count)
{
    if (length > MOST_CELLS - WORD_HEADER || count > measure->left / (int64_t)length ||
        measure->n_cells > MOST_CELLS - WORD_HEADER - length) {
        PyErr_SetString(PyExc_OverflowError, "counts too large for this engine");
        return -1;
    }
    measure->left -= count * (int64_t)length;
    measure->n_cells += WORD_HEADER + length;
    return 0;
}

static int measure_dict(PyObject *counts, struct measure *measure)
{
    PyObject *key, *value;
    int64_t count;
    for (Py_ssize_t at = 0; PyDict_Next(counts, &at, &key, &value);) {
        int is_word = read_item(key, value, &count);
        if (is_word < 0 ||
            (is_word && measure_word(measure, (size_t)PyBytes_GET_SIZE(key), count) < 0))
            return -1;
    }
    return 0;
}

static int add_dict(PyObject *counts, struct learner *learner)
{
    PyObject *key, *value;
    int64_t count;
    for (Py_ssize_t at = 0; PyDict_Next(counts, &at, &key, &value);)
        if (read_item(key, value, &count) > 0 &&
            learner_add(learner, (const uint8_t *)PyBytes_AS_STRING(key),
                        (size_t)PyBytes_GET_SIZE(key), count) < 0)
            return -1;
    return 0;
}

/* The same for the counts of a PretokenCounter. */

static int64_t count_of(uint64_t number)
{
    return number > INT64_MAX ? INT64_MAX : (int64_t)number;
}

static int measure_map(const struct byte_map *map, struct measure *measure)
{
    for (size_t i = 0; map->longs && i < (size_t)1 << map->long_bits; i++)
        if (map->longs[i].length &&
            measure_word(measure, map->longs[i].length, count_of(map->longs[i].number)) < 0)
            return -1;
    for (size_t i = 0; map->shorts && i < (size_t)1 << map->short_bits; i++) {
        size_t length = map->shorts[i].key.high >> 56;
        if (length > 1 && measure_word(measure, length, count_of(map->shorts[i].number)) < 0)
            return -1;
    }
    return 0;
}

static int add_map(const struct byte_map *map, struct learner *learner)
{
    uint8_t bytes[16];
    for (size_t i = 0; map->longs && i < (size_t)1 << map->long_bits; i++) {
        const struct long_item *item = &map->longs[i];
        if (item->length && learner_add(learner, map->bytes + item->at, item->length,
                                        count_of(item->number)) < 0)
            return -1;
    }
    for (size_t i = 0; map->shorts && i < (size_t)1 << map->short_bits; i++) {
        const struct short_item *item = &map->shorts[i];
        if (item->key.high >> 56 > 1 && learner_add(learner, bytes, short_bytes(item->key, bytes),
                                                    count_of(item->number)) < 0)
            return -1;
    }
    return 0;
}

/* A learner with all words; NULL and an exception if that fails.  Between measuring and adding,
 * nothing may change the counts: no Python code runs.  `map` has the counts of a PretokenCounter;
 * it is NULL for a dict, or without counts. */
static struct learner *load_words(const struct question *question, const struct byte_map *map,
                                  uint64_t seed)
{
    struct measure measure = {.left = MOST_SYMBOLS};
    bool is_dict = PyDict_Check(question->counts);
    if ((is_dict && measure_dict(question->counts, &measure) < 0) ||
        (map && measure_map(map, &measure) < 0))
        return NULL;
    struct learner *learner = learner_new(seed, measure.n_cells);
    if (!learner || learner_add_bytes(learner, question->alphabet) < 0 || (is_dict && add_dict(question->counts, learner) < 0) ||
        (map && add_map(map, learner) < 0)) {
        learner_free(learner);
        PyErr_NoMemory();
        return NULL;
    }
    return learner;
}

static struct learner *load_counter(const struct question *question, uint64_t seed)
{
    PretokenCounter *counter = (PretokenCounter *)question->counts;
    enter(counter);
    struct learner *learner =
        load_words(question, counter->counter ? &counter->counter->map : NULL, seed);
    leave(counter);
    return learner;
}

static struct learner *load_locked(const struct question *question, uint64_t seed)
{
    struct learner *learner;
#if defined(Py_GIL_DISABLED)
    Py_BEGIN_CRITICAL_SECTION(question->counts);
#endif
    learner = load_words(question, NULL, seed);
#if defined(Py_GIL_DISABLED)
    Py_END_CRITICAL_SECTION();
#endif
    return learner;
}

struct learner *learner_of(PyObject *counts, PyObject *alphabet)
{
    struct question question = {.counts = counts};
    uint64_t seed;
    if (!read_alphabet(alphabet, &question.alphabet) || get_seed(&seed) < 0)
        return NULL;
    return load_locked(&question, seed);
}

static int load_forbidden(struct learner *learner, PyObject *forbidden)
{
    PyObject *iterator = PyObject_GetIter(forbidden), *item;
    if (!iterator)
        return -1;
    while ((item = PyIter_Next(iterator))) {
        if (!PyBytes_Check(item))
            PyErr_SetString(PyExc_TypeError, "forbidden must be a frozenset of bytes");
        else if (learner_forbid(learner, (const uint8_t *)PyBytes_AS_STRING(item),
                                (size_t)PyBytes_GET_SIZE(item)) < 0)
            PyErr_NoMemory();
        Py_DECREF(item);
        if (PyErr_Occurred())
            break;
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : 0;
}

/* -- Learning: the work ---------------------------------------------------------------------- */

/* Report new tokens, and check for Ctrl-C. */
static int report(const struct question *question, size_t new_tokens)
{
    if (PyErr_CheckSignals() < 0)
        return -1;
    if (question->advance == Py_None || !new_tokens)
        return 0;
    PyObject *result = PyObject_CallFunction(question->advance, "n", (Py_ssize_t)new_tokens);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static enum learning learn_slice(struct learner *learner, bool first)
{
    enum learning state = LEARNING;
    Py_BEGIN_ALLOW_THREADS;
    if (first && learner_start(learner) < 0)
        state = NO_MEMORY;
    if (state == LEARNING)
        state = learner_learn(learner, SLICE);
    Py_END_ALLOW_THREADS;
    return state;
}

/* Learn all merges.  Returns why it ended, or NO_MEMORY and an exception: an OverflowError if the
 * Python engine must do it. */
static enum learning learn_all(const struct question *question, struct learner *learner)
{
    learner->wanted = question->n_tokens > 0 ? (size_t)question->n_tokens : 0;
    learner->min_frequency = question->min_frequency > 1 ? question->min_frequency : 1;
    learner->limit = question->limit > 0 ? (uint64_t)question->limit : 0;
    enum learning state = LEARNING;
    for (bool first = true; state == LEARNING; first = false) {
        size_t before = learner->n_tokens;
        state = learn_slice(learner, first);
        if (state == NO_MEMORY)
            PyErr_NoMemory();
        else if (state == MADE_TWICE)
            PyErr_SetString(PyExc_OverflowError, "a merge makes a token that already exists");
        else if (report(question, learner->n_tokens - before) < 0)
            state = NO_MEMORY;
    }
    return state == MADE_TWICE ? NO_MEMORY : state;
}

/* -- Learning: the answer -------------------------------------------------------------------- */

static PyObject *list_tokens(const struct learner *learner)
{
    PyObject *list = PyList_New((Py_ssize_t)learner->n_tokens);
    for (size_t i = 0; list && i < learner->n_tokens; i++) {
        struct span token = learner->tokens[i];
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)learner->bytes + token.at,
                                                    (Py_ssize_t)token.length);
        if (bytes)
            PyList_SET_ITEM(list, (Py_ssize_t)i, bytes);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *list_merges(const struct learner *learner, PyObject *tokens)
{
    size_t n = learner->n_tokens - learner->n_base;
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        uint64_t pair = learner->merges[learner->n_base + i].pair;
        PyObject *merge = PyTuple_Pack(2, PyList_GET_ITEM(tokens, left_of(pair)),
                                       PyList_GET_ITEM(tokens, right_of(pair)));
        if (merge)
            PyList_SET_ITEM(list, (Py_ssize_t)i, merge);
        else
            Py_CLEAR(list);
    }
    return list;
}

/* How often each merge occurred. */
static PyObject *list_counts(const struct learner *learner)
{
    size_t n = learner->n_tokens - learner->n_base;
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *count = PyLong_FromLongLong(learner->merges[learner->n_base + i].count);
        if (count)
            PyList_SET_ITEM(list, (Py_ssize_t)i, count);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *make_answer(const struct learner *learner, enum learning state)
{
    const char *stopped = state == ENOUGH_TOKENS ? "vocab size reached"
                          : state == TOO_RARE    ? "nothing left above min_frequency"
                                                 : "no pairs left";
    PyObject *tokens = list_tokens(learner);
    PyObject *merges = tokens ? list_merges(learner, tokens) : NULL;
    PyObject *new_tokens =
        merges ? PyList_GetSlice(tokens, (Py_ssize_t)learner->n_base, PY_SSIZE_T_MAX) : NULL;
    PyObject *answer = new_tokens ? Py_BuildValue("OOs", merges, new_tokens, stopped) : NULL;
    Py_XDECREF(tokens);
    Py_XDECREF(merges);
    Py_XDECREF(new_tokens);
    return answer;
}

PyDoc_STRVAR(learn_merges_doc,
             "learn_merges(counts, alphabet, n_tokens, min_frequency, max_token_length,\n"
             "             forbidden, advance, /)\n--\n\n"
             "Learn merges from counts of pre-tokens.\n\n"
             "Args:\n"
             "    counts: pre-token -> count, a dict of bytes; or a PretokenCounter.\n"
             "    alphabet: all 256 bytes; ties go to the pair that sorts first in their order.\n"
             "    n_tokens: how many tokens may be added to the 256 bytes.\n"
             "    min_frequency: pairs that occur less often are not merged.\n"
             "    max_token_length: or None.\n"
             "    forbidden: byte strings that must not become a token, a frozenset.\n"
             "    advance: called now and then with the number of new tokens; or None.\n\n"
             "Returns:\n"
             "    Merges, as tuples of two tokens; the new tokens; and why it stopped.\n\n"
             "Raises:\n"
             "    OverflowError: the counts, or n_tokens, are too large for this engine.");

static PyObject *module_learn_merges(PyObject *Py_UNUSED(module), PyObject *args)
{
    struct question question;
    uint64_t seed;
    if (read_question(args, &question) < 0 || get_seed(&seed) < 0)
        return NULL;
    struct learner *learner =
        PyDict_Check(question.counts) ? load_locked(&question, seed) : load_counter(&question, seed);
    if (!learner)
        return NULL;
    PyObject *answer = NULL;
    if (load_forbidden(learner, question.forbidden) == 0) {
        enum learning state = learn_all(&question, learner);
        if (state != NO_MEMORY)
            answer = make_answer(learner, state);
    }
    learner_free(learner);
    return answer;
}

/* -- Learning from words of tokens ------------------------------------------------------------ */

/* The rest of the question. */
struct joins {
    PyObject *tokens, *never;
    const struct byte_map *runs; /* of a RunCounter; NULL if words and counts were passed */
    Py_buffer words, counts;
    long long max_words;
};

static void release_joins(struct joins *joins)
{
    if (joins->runs)
        return;
    PyBuffer_Release(&joins->words);
    PyBuffer_Release(&joins->counts);
}

/* Read words: a RunCounter, and None for counts; or two buffers. */
static int get_words(struct joins *joins, PyObject *words, PyObject *counts)
{
    joins->runs = counts == Py_None ? runs_of(words) : NULL;
    if (joins->runs)
        return 0;
    if (PyObject_GetBuffer(words, &joins->words, PyBUF_SIMPLE) < 0)
        return -1;
    if (PyObject_GetBuffer(counts, &joins->counts, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&joins->words);
        return -1;
    }
    return 0;
}

static int check_bytes(PyObject *items, const char *name)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        if (!PyBytes_Check(item) || !PyBytes_GET_SIZE(item)) {
            PyErr_Format(PyExc_TypeError, "%s must be non-empty bytes", name);
            return -1;
        }
    }
    return 0;
}

static int read_joins(PyObject *args, struct question *question, struct joins *joins)
{
    PyObject *words, *counts;
    question->alphabet = NULL;
    if (!PyArg_ParseTuple(args, "O!OOO&O&O&O!O&O!O:learn_joins", &PyTuple_Type, &joins->tokens,
                          &words, &counts, read_number, &question->n_tokens,
                          read_number, &question->min_frequency, read_limit, &question->limit,
                          &PyFrozenSet_Type, &question->forbidden, read_limit, &joins->max_words,
                          &PyTuple_Type, &joins->never, &question->advance))
        return -1;
    if (get_words(joins, words, counts) < 0)
        return -1;
    if (check_bytes(joins->tokens, "tokens") < 0 || check_bytes(joins->never, "never") < 0)
        goto fail;
    if (!joins->runs && (joins->words.len % (Py_ssize_t)sizeof(int32_t) ||
                         joins->counts.len % (Py_ssize_t)sizeof(int64_t))) {
        PyErr_SetString(PyExc_ValueError, "words must have 32-bit integers, counts 64-bit ones");
        goto fail;
    }
    if (PyTuple_GET_SIZE(joins->tokens) > (Py_ssize_t)MOST_TOKENS ||
        question->n_tokens > (long long)MOST_TOKENS - PyTuple_GET_SIZE(joins->tokens)) {
        PyErr_SetString(PyExc_OverflowError, "too many tokens for this engine");
        goto fail;
    }
    return 0;
fail:
    release_joins(joins);
    return -1;
}

/* Another thread may write to a buffer, so each number is read only once, into memory that nobody
 * else has. */
static int copy_words(const struct joins *joins, uint32_t **words, int64_t **counts)
{
    *words = PyMem_Malloc((size_t)joins->words.len + 1);
    *counts = PyMem_Malloc((size_t)joins->counts.len + 1);
    if (!*words || !*counts) {
        PyMem_Free(*words);
        PyMem_Free(*counts);
        PyErr_NoMemory();
        return -1;
    }
    memcpy(*words, joins->words.buf, (size_t)joins->words.len);
    memcpy(*counts, joins->counts.buf, (size_t)joins->counts.len);
    return 0;
}

/* Call measure_word, or else add a word to the learner.  Returns 0, or -1 and an exception. */
static int take_word(const uint32_t *symbols, size_t length, int64_t count,
                     struct measure *measure, struct learner *learner)
{
    if (length < 2 || count <= 0)
        return 0;
    if (measure)
        return measure_word(measure, length, count);
    if (learner_add_symbols(learner, symbols, length, count) == 0)
        return 0;
    PyErr_NoMemory();
    return -1;
}

/* The same for all words. */
static int read_words(const struct joins *joins, const uint32_t *words, const int64_t *counts,
                      struct measure *measure, struct learner *learner)
{
    size_t n = (size_t)joins->words.len / sizeof *words, word = 0, start = 0;
    size_t n_counts = (size_t)joins->counts.len / sizeof *counts;
    for (size_t i = 0; i < n; i++) {
        if (words[i] < (size_t)PyTuple_GET_SIZE(joins->tokens))
            continue;
        if (words[i] != UINT32_MAX || word == n_counts) {
            PyErr_SetString(PyExc_ValueError, "words must be numbers of tokens, with -1 after each "
                                              "word, and counts must have one count per word");
            return -1;
        }
        if (take_word(words + start, i - start, counts[word++], measure, learner) < 0)
            return -1;
        start = i + 1;
    }
    if (word == n_counts && start == n)
        return 0;
    PyErr_SetString(PyExc_ValueError, "each word must end with -1 and have one count");
    return -1;
}

static int read_run(const struct joins *joins, const uint8_t *key, size_t size, uint64_t count,
                    struct measure *measure, struct learner *learner)
{
    size_t length = size / PACKED;
    uint32_t few[KEY_BYTES / PACKED], *symbols = few;
    if (length > KEY_BYTES / PACKED && !(symbols = PyMem_Malloc(length * sizeof *symbols))) {
        PyErr_NoMemory();
        return -1;
    }
    int status = 0;
    for (size_t i = 0; i < length; i++) {
        symbols[i] = unpack(key + PACKED * i);
        if (symbols[i] >= (size_t)PyTuple_GET_SIZE(joins->tokens))
            status = -1;
    }
    if (status < 0)
        PyErr_SetString(PyExc_ValueError, "a run contains a number that no token has");
    else
        status = take_word(symbols, length, count_of(count), measure, learner);
    if (symbols != few)
        PyMem_Free(symbols);
    return status;
}

static int read_runs(const struct joins *joins, struct measure *measure, struct learner *learner)
{
    const struct byte_map *map = joins->runs;
    uint8_t bytes[16];
    for (size_t i = 0; map->longs && i < (size_t)1 << map->long_bits; i++) {
        const struct long_item *item = &map->longs[i];
        if (item->length && read_run(joins, map->bytes + item->at, item->length, item->number,
                                     measure, learner) < 0)
            return -1;
    }
    for (size_t i = 0; map->shorts && i < (size_t)1 << map->short_bits; i++) {
        const struct short_item *item = &map->shorts[i];
        if (item->key.high && read_run(joins, bytes, short_bytes(item->key, bytes), item->number,
                                       measure, learner) < 0)
            return -1;
    }
    return 0;
}

static int add_tokens(const struct joins *joins, struct learner *learner)
{
    learner->refuses = joins->max_words < UINT32_MAX || PyTuple_GET_SIZE(joins->never);
    learner->refusal.max_words =
        joins->max_words < UINT32_MAX ? (uint32_t)joins->max_words : UINT32_MAX;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(joins->never); i++) {
        PyObject *never = PyTuple_GET_ITEM(joins->never, i);
        if (learner_refuse(learner, (const uint8_t *)PyBytes_AS_STRING(never),
                           (size_t)PyBytes_GET_SIZE(never)) < 0)
            return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(joins->tokens); i++) {
        PyObject *token = PyTuple_GET_ITEM(joins->tokens, i);
        if (learner_add_token(learner, (const uint8_t *)PyBytes_AS_STRING(token),
                              (size_t)PyBytes_GET_SIZE(token)) < 0)
            return -1;
    }
    return 0;
}

/* A learner with all tokens, and room for words; NULL and an exception if that fails. */
static struct learner *new_joins(const struct joins *joins, const struct measure *measure,
                                 uint64_t seed)
{
    struct learner *learner = learner_new(seed, measure->n_cells);
    if (learner && add_tokens(joins, learner) == 0)
        return learner;
    PyErr_NoMemory();
    learner_free(learner);
    return NULL;
}

static struct learner *load_runs(const struct joins *joins, uint64_t seed)
{
    struct measure measure = {.left = MOST_SYMBOLS};
    if (read_runs(joins, &measure, NULL) < 0)
        return NULL;
    struct learner *learner = new_joins(joins, &measure, seed);
    if (learner && read_runs(joins, NULL, learner) == 0)
        return learner;
    learner_free(learner);
    return NULL;
}

static struct learner *load_buffers(const struct joins *joins, uint64_t seed)
{
    struct measure measure = {.left = MOST_SYMBOLS};
    struct learner *learner = NULL;
    uint32_t *words;
    int64_t *counts;
    if (copy_words(joins, &words, &counts) < 0)
        return NULL;
    if (read_words(joins, words, counts, &measure, NULL) == 0)
        learner = new_joins(joins, &measure, seed);
    if (learner && read_words(joins, words, counts, NULL, learner) < 0) {
        learner_free(learner);
        learner = NULL;
    }
    PyMem_Free(words);
    PyMem_Free(counts);
    return learner;
}

/* A learner with all tokens and words; NULL and an exception if that fails. */
static struct learner *load_joins(const struct joins *joins, PyObject *words, uint64_t seed)
{
    struct learner *learner;
    (void)words; /* unused in builds without locks */
    if (!joins->runs)
        return load_buffers(joins, seed);
    LOCKED(words, learner = load_runs(joins, seed));
    return learner;
}

static PyObject *answer_joins(const struct learner *learner, enum learning state)
{
    PyObject *made = make_answer(learner, state);
    PyObject *counts = made ? list_counts(learner) : NULL;
    PyObject *answer = counts ? PyTuple_Pack(2, made, counts) : NULL;
    Py_XDECREF(made);
    Py_XDECREF(counts);
    return answer;
}

PyDoc_STRVAR(learn_joins_doc,
             "learn_joins(tokens, words, counts, n_tokens, min_frequency, max_token_length,\n"
             "            forbidden, max_words, never, advance, /)\n--\n\n"
             "Learn merges from counted words of existing tokens.\n\n"
             "Args:\n"
             "    tokens: all tokens that words are made of, a tuple of bytes, each once.  Ties go\n"
             "        to the pair that sorts first in this order.\n"
             "    words: a buffer of 32-bit integers: for each word, the places of its tokens in\n"
             "        `tokens`, then -1.  Or a RunCounter.\n"
             "    counts: a buffer of 64-bit integers, how often each word occurs; None for a\n"
             "        RunCounter.\n"
             "    max_words: no new token has more words, separated by spaces; or None.\n"
             "    never: no new token contains one of these, a tuple of bytes.\n"
             "    n_tokens, min_frequency, max_token_length, forbidden, advance: as for\n"
             "        learn_merges; the length limits no merge of two of the given tokens.\n\n"
             "Returns:\n"
             "    What learn_merges returns, and how often each merge occurred.\n\n"
             "Raises:\n"
             "    OverflowError: the counts, or n_tokens, are too large for this engine; or a merge\n"
             "        would make a token that already exists.");

static PyObject *module_learn_joins(PyObject *Py_UNUSED(module), PyObject *args)
{
    struct question question;
    struct joins joins;
    uint64_t seed;
    if (get_seed(&seed) < 0 || read_joins(args, &question, &joins) < 0)
        return NULL;
    struct learner *learner = load_joins(&joins, PyTuple_GET_ITEM(args, 1), seed);
    release_joins(&joins);
    PyObject *answer = NULL;
    if (learner && load_forbidden(learner, question.forbidden) == 0) {
        enum learning state = learn_all(&question, learner);
        if (state != NO_MEMORY)
            answer = answer_joins(learner, state);
    }
    learner_free(learner);
    return answer;
}

/* -- The module ------------------------------------------------------------------------------ */

static PyMethodDef training_methods[] = {
    {"learn_merges", module_learn_merges, METH_VARARGS, learn_merges_doc},
    {"learn_joins", module_learn_joins, METH_VARARGS, learn_joins_doc},
    {NULL, NULL, 0, NULL},
};

int add_training(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &counter_spec, NULL);
    if (!type)
        return -1;
    if (PyModule_AddObject(module, "PretokenCounter", type) < 0) {
        Py_DECREF(type);
        return -1;
    }
    return PyModule_AddFunctions(module, training_methods);
}
