/* Python's side of finding added tokens: the type `Finder`, and encoding text that may have some. */

#include "binding/finder.h"

#include <stdlib.h>

#include "binding/encoder.h"
#include "binding/text.h"
#include "find/find.h"

typedef struct {
    PyObject_HEAD
    struct finder finder;
    uint32_t *ids; /* of each string; NO_TOKEN where it needs more than to be found */
} Finder;

static void finder_dealloc(Finder *self)
{
    PyTypeObject *type = Py_TYPE(self);
    finder_release(&self->finder);
    PyMem_Free(self->ids);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* -- Loading --------------------------------------------------------------------------------- */

/* What a dict of strings says, read at once. */
struct strings {
    uint32_t *characters, *lengths, *ids;
    size_t n, total;
};

/* Read one string: its length; its id; and its characters, if there is room for them already. */
static int read_string(struct strings *strings, PyObject *string, PyObject *id)
{
    if (check_string(string) < 0)
        return -1;
    size_t length = (size_t)PyUnicode_GET_LENGTH(string);
    if (length == 0) {
        PyErr_SetString(PyExc_ValueError, "an empty string is everywhere");
        return -1;
    }
    if (strings->total + length > MAX_FIND_LENGTH) {
        PyErr_SetString(PyExc_OverflowError, "the strings are too long");
        return -1;
    }
    if (strings->characters) {
        uint32_t number = id == Py_None ? NO_TOKEN : read_id(id);
        if (number == NO_TOKEN && id != Py_None)
            return -1;
        strings->ids[strings->n] = number;
        strings->lengths[strings->n] = (uint32_t)length;
        for (size_t i = 0; i < length; i++)
            strings->characters[strings->total + i] = PyUnicode_READ_CHAR(string, (Py_ssize_t)i);
    }
    strings->n++;
    strings->total += length;
    return 0;
}

static int read_dict(struct strings *strings, PyObject *dict)
{
    PyObject *key, *value;
    strings->n = strings->total = 0;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);)
        if (read_string(strings, key, value) < 0)
            return -1;
    return 0;
}

/* Measure a dict, make room, and read it. */
static int read_strings(struct strings *strings, PyObject *dict)
{
    if (read_dict(strings, dict) < 0)
        return -1;
    strings->lengths = PyMem_New(uint32_t, strings->n + 1);
    strings->ids = PyMem_New(uint32_t, strings->n + 1);
    strings->characters = PyMem_New(uint32_t, strings->total + 1);
    if (!strings->lengths || !strings->ids || !strings->characters) {
        PyErr_NoMemory();
        return -1;
    }
    return read_dict(strings, dict);
}

PyDoc_STRVAR(finder_doc,
             "Finder(strings, /)\n--\n\n"
             "Finds any of some strings: the leftmost, of those the longest.\n\n"
             "Args:\n"
             "    strings: string -> the id it has as an added token; None if it has none, or if\n"
             "        encode_around is not to take it.\n\n"
             "Raises:\n"
             "    OverflowError: the strings are too long, or an id is too large.");

static PyObject *finder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *dict;
    struct strings strings = {0};
    uint64_t seed;
    if (kwargs && PyDict_GET_SIZE(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Finder() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!:Finder", &PyDict_Type, &dict) || get_seed(&seed) < 0)
        return NULL;
    Finder *self = (Finder *)type->tp_alloc(type, 0); /* all zero */
    if (!self)
        return NULL;
    int status;
    LOCKED(dict, status = read_strings(&strings, dict));
    if (status == 0 && finder_open(&self->finder, strings.characters, strings.lengths,
                                   (uint32_t)strings.n, seed) < 0) {
        PyErr_NoMemory();
        status = -1;
    }
    self->ids = strings.ids;
    PyMem_Free(strings.lengths);
    PyMem_Free(strings.characters);
    if (status < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* -- Finding --------------------------------------------------------------------------------- */

/* Find in part of a string that check_string has seen.  Returns 0, or -1 and an exception. */
static int find_in(const Finder *self, PyObject *string, size_t start, size_t end,
                   struct matches *matches)
{
    int status, kind = (int)PyUnicode_KIND(string); /* the width of a character */
    const void *text = PyUnicode_DATA(string);
    if (end - start < LONG_TEXT) {
        status = finder_find(&self->finder, text, kind, start, end, matches);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = finder_find(&self->finder, text, kind, start, end, matches);
        Py_END_ALLOW_THREADS
    }
    if (status < 0)
        PyErr_NoMemory();
    return status;
}

/* A place in a string, as `re` takes it: cut off at both ends. */
static int read_place(PyObject *object, Py_ssize_t length, size_t *place)
{
    Py_ssize_t at = PyNumber_AsSsize_t(object, NULL);
    if (at == -1 && PyErr_Occurred())
        return -1;
    *place = (size_t)(at < 0 ? 0 : at > length ? length : at);
    return 0;
}

static PyObject *list_of_spans(const Finder *self, const struct matches *matches)
{
    PyObject *list = PyList_New((Py_ssize_t)matches->n);
    for (size_t i = 0; list && i < matches->n; i++) {
        size_t start = matches->items[i].start;
        size_t end = start + self->finder.lengths[matches->items[i].string];
        PyObject *span = Py_BuildValue("(nn)", (Py_ssize_t)start, (Py_ssize_t)end);
        if (span)
            PyList_SET_ITEM(list, (Py_ssize_t)i, span);
        else
            Py_CLEAR(list);
    }
    return list;
}

PyDoc_STRVAR(find_doc,
             "find(text, start, end, /)\n--\n\n"
             "Return the (start, end) of each string in text[start:end], places in the text.\n\n"
             "The next is looked for behind the one before.");

static PyObject *finder_find_all(Finder *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args != 3) {
        PyErr_Format(PyExc_TypeError, "find() takes 3 arguments, got %zd", n_args);
        return NULL;
    }
    size_t start, end;
    if (check_string(args[0]) < 0)
        return NULL;
    Py_ssize_t length = PyUnicode_GET_LENGTH(args[0]);
    if (read_place(args[1], length, &start) < 0 || read_place(args[2], length, &end) < 0)
        return NULL;
    if (start >= end)
        return PyList_New(0);
    PyObject *list = NULL;
    struct matches matches = {0};
    if (find_in(self, args[0], start, end, &matches) == 0)
        list = list_of_spans(self, &matches);
    free(matches.items);
    return list;
}

/* -- Encoding -------------------------------------------------------------------------------- */

/* Encode text with strings in it that all have ids: the text between, and these.  Returns 0; 1 if
 * there is a surrogate; or -1 if memory is short.  Needs no interpreter's lock. */
static int encode_pieces_between(const Encoder *encoder, struct worker *worker, PyObject *string,
                                 const Finder *self, const struct matches *matches)
{
    size_t done = 0, length = (size_t)PyUnicode_GET_LENGTH(string);
    for (size_t i = 0; i <= matches->n; i++) {
        size_t size, start = i < matches->n ? matches->items[i].start : length;
        if (done < start) {
            const uint8_t *text = checked_utf8_between(worker, string, done, start, &size);
            if (!text)
                return size ? 1 : -1;
            if (encode_text(&encoder->vocabulary, worker, encoder->cutter, text, size, true) < 0)
                return -1;
        }
        if (i == matches->n)
            break;
        uint32_t number = matches->items[i].string;
        if (worker_add_id(worker, self->ids[number]) < 0)
            return -1;
        done = start + self->finder.lengths[number];
    }
    return 0;
}

/* Whether each string that was found stands for an id, and that is all. */
static bool have_ids(const Encoder *encoder, const Finder *self, const struct matches *matches)
{
    for (size_t i = 0; i < matches->n; i++)
        if (self->ids[matches->items[i].string] >= encoder->tokens.n_ids)
            return false;
    return true;
}

static PyObject *encode_matches(Encoder *encoder, PyObject *string, const Finder *self,
                                const struct matches *matches)
{
    if (!have_ids(encoder, self, matches))
        Py_RETURN_NONE;
    struct worker *worker = need_worker(encoder);
    if (!worker)
        return NULL;
    int status;
    if (PyUnicode_GET_LENGTH(string) < LONG_TEXT) {
        status = encode_pieces_between(encoder, worker, string, self, matches);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = encode_pieces_between(encoder, worker, string, self, matches);
        Py_END_ALLOW_THREADS
    }
    PyObject *result = NULL;
    if (status < 0)
        PyErr_NoMemory();
    else if (status == 0)
        result = list_of(encoder, worker->ids, worker->n_ids);
    else
        result = Py_NewRef(Py_None);
    put_back(encoder, worker);
    return result;
}

const char encode_around_doc[] =
    PyDoc_STR("encode_around(finder, text, /)\n--\n\n"
              "Do what encode_plain does, with strings in the text that stand for their ids.\n\n"
              "Returns:\n"
              "    The ids; None where encode_plain returns that, and for text in which a string\n"
              "    without an id is found.");

PyObject *encoder_encode_around(Encoder *self, PyObject *const *args, Py_ssize_t n_args)
{
    /* Nothing else has this function: the type itself is hard to come by here. */
    if (n_args != 2 || Py_TYPE(args[0])->tp_dealloc != (destructor)finder_dealloc) {
        PyErr_SetString(PyExc_TypeError, "encode_around() takes a Finder and a text");
        return NULL;
    }
    if (!is_plain(self, args[1]))
        Py_RETURN_NONE;
    const Finder *finder = (const Finder *)args[0];
    struct matches matches = {0};
    PyObject *list = NULL;
    if (find_in(finder, args[1], 0, (size_t)PyUnicode_GET_LENGTH(args[1]), &matches) == 0)
        list = encode_matches(self, args[1], finder, &matches);
    free(matches.items);
    return list;
}

/* -- The type -------------------------------------------------------------------------------- */

static PyMethodDef finder_methods[] = {
    {"find", (PyCFunction)(void (*)(void))finder_find_all, METH_FASTCALL, find_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot finder_slots[] = {
    {Py_tp_doc, (void *)finder_doc},
    {Py_tp_new, (void *)finder_new},
    {Py_tp_dealloc, (void *)finder_dealloc},
    {Py_tp_methods, finder_methods},
    {0, NULL},
};

PyType_Spec finder_spec = {
    .name = "_bpe_tokenizer.native.Finder",
    .basicsize = sizeof(Finder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = finder_slots,
};
