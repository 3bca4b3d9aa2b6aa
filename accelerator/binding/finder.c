/* Python's side of finding added tokens: the type `Finder`, and encoding text that may have some. */

#include "binding/finder.h"

#include <stdlib.h>

#include "binding/encoder.h"
#include "binding/text.h"
#include "find/find.h"

static void finder_dealloc(Finder *self)
{
    PyTypeObject *type = Py_TYPE(self);
    finder_release(&self->finder);
    PyMem_Free(self->ids);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

const struct finder *finder_of(PyObject *object)
{
    /* Recognize the type by its function: the type object isn't at hand here. */
    bool is_one = Py_TYPE(object)->tp_dealloc == (destructor)finder_dealloc;
    return is_one ? &((const Finder *)object)->finder : NULL;
}

/* -- Loading --------------------------------------------------------------------------------- */

/* The contents of a dict of strings, read in one go. */
struct strings {
    uint32_t *characters, *lengths, *ids;
    size_t n, total;
};

/* Read one string: its length; its id; and its characters, once there is room for them. */
static int read_string(struct strings *strings, PyObject *string, PyObject *id)
{
    if (check_string(string) < 0)
        return -1;
    size_t length = (size_t)PyUnicode_GET_LENGTH(string);
    if (length == 0) {
        PyErr_SetString(PyExc_ValueError, "a string to find must not be empty");
        return -1;
    }
    if (strings->total + length > MAX_FIND_LENGTH) {
        PyErr_SetString(PyExc_OverflowError, "the strings to find are too long in total");
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
             "Finds any of a set of strings: the leftmost, and of those the longest.\n\n"
             "Args:\n"
             "    strings: string -> its id as an added token; None if it has no id, or if\n"
             "        encode_around must not replace it.\n\n"
             "Raises:\n"
             "    OverflowError: the strings are too long in total, or an id is too large.");

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

int find_in(const Finder *self, PyObject *string, size_t start, size_t end,
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

/* A place in a string, clamped as in `re`. */
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
             "Return the (start, end) of each string in text[start:end], as places in the text.\n\n"
             "Matches don't overlap.");

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

bool have_ids(const Encoder *encoder, const Finder *self, const struct matches *matches)
{
    for (size_t i = 0; i < matches->n; i++)
        if (self->ids[matches->items[i].string] >= encoder->tokens.n_ids)
            return false;
    return true;
}

static PyObject *encode_matches(Encoder *encoder, PyObject *string, const Finder *self,
                                const struct matches *matches, maker *make)
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
        result = make(encoder, worker->ids, worker->n_ids);
    else
        result = Py_NewRef(Py_None);
    put_back(encoder, worker);
    return result;
}

const char encode_around_doc[] =
    PyDoc_STR("encode_around(finder, text, /)\n--\n\n"
              "Do what encode_plain does, but replace the finder's strings by their ids.\n\n"
              "Returns:\n"
              "    The ids; None where encode_plain returns that, and for text in which a string\n"
              "    without an id is found.");

static PyObject *encode_around(Encoder *self, PyObject *const *args, Py_ssize_t n_args, maker *make)
{
    if (n_args != 2 || !finder_of(args[0])) {
        PyErr_SetString(PyExc_TypeError, "encode_around() takes a Finder and a text");
        return NULL;
    }
    if (!is_plain(self, args[1]))
        Py_RETURN_NONE;
    const Finder *finder = (const Finder *)args[0];
    struct matches matches = {0};
    PyObject *list = NULL;
    if (find_in(finder, args[1], 0, (size_t)PyUnicode_GET_LENGTH(args[1]), &matches) == 0)
        list = encode_matches(self, args[1], finder, &matches, make);
    free(matches.items);
    return list;
}

PyObject *encoder_encode_around(Encoder *self, PyObject *const *args, Py_ssize_t n_args)
{
    return encode_around(self, args, n_args, list_of);
}

const char encode_around_to_buffer_doc[] =
    PyDoc_STR("encode_around_to_buffer(finder, text, /)\n--\n\n"
              "Do what encode_around does; a bytearray, as of encode_to_buffer.");

PyObject *encoder_encode_around_to_buffer(Encoder *self, PyObject *const *args, Py_ssize_t n_args)
{
    return encode_around(self, args, n_args, buffer_of);
}

/* The number of ids. */
static PyObject *number_of(const Encoder *Py_UNUSED(self), const uint32_t *Py_UNUSED(ids), size_t n)
{
    return PyLong_FromSize_t(n);
}

const char count_around_doc[] =
    PyDoc_STR("count_around(finder, text, /)\n--\n\n"
              "Count the ids that encode_around would give, or return None, as it does.");

PyObject *encoder_count_around(Encoder *self, PyObject *const *args, Py_ssize_t n_args)
{
    return encode_around(self, args, n_args, number_of);
}

/* -- Segments -------------------------------------------------------------------------------- */

/* The pairs (string, object) that make up a text.  The finder searches those whose object is the
 * mark. */
struct segments {
    PyObject *items; /* a tuple of them */
    PyObject *mark;
    Py_ssize_t length; /* of all strings */
    Py_UCS4 highest;   /* of their characters, at most */
};

static inline PyObject *segment_text(const struct segments *segments, Py_ssize_t i)
{
    return PyTuple_GET_ITEM(PyTuple_GET_ITEM(segments->items, i), 0);
}

static inline bool is_marked(const struct segments *segments, Py_ssize_t i)
{
    return PyTuple_GET_ITEM(PyTuple_GET_ITEM(segments->items, i), 1) == segments->mark;
}

/* Check all segments and measure them.  Returns 1; 0 if one has an object that is true, but not the
 * mark; or -1 and an exception. */
static int measure_segments(struct segments *segments)
{
    segments->length = 0;
    segments->highest = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(segments->items); i++) {
        PyObject *item = PyTuple_GET_ITEM(segments->items, i);
        if (!PyTuple_CheckExact(item) || PyTuple_GET_SIZE(item) != 2) {
            PyErr_SetString(PyExc_TypeError, "a segment must be a tuple of two");
            return -1;
        }
        PyObject *text = PyTuple_GET_ITEM(item, 0);
        if (check_string(text) < 0)
            return -1;
        if (PyUnicode_GET_LENGTH(text) > PY_SSIZE_T_MAX - segments->length) {
            PyErr_NoMemory();
            return -1;
        }
        segments->length += PyUnicode_GET_LENGTH(text);
        Py_UCS4 highest = PyUnicode_MAX_CHAR_VALUE(text);
        segments->highest = highest > segments->highest ? highest : segments->highest;
        int other = is_marked(segments, i) ? 0 : PyObject_IsTrue(PyTuple_GET_ITEM(item, 1));
        if (other)
            return other < 0 ? -1 : 0;
    }
    return 1;
}

static PyObject *join_segments(const struct segments *segments)
{
    PyObject *text = PyUnicode_New(segments->length, segments->highest);
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; text && i < PyTuple_GET_SIZE(segments->items); i++) {
        PyObject *part = segment_text(segments, i);
        Py_ssize_t length = PyUnicode_GET_LENGTH(part);
        if (PyUnicode_CopyCharacters(text, at, part, 0, length) < 0)
            Py_CLEAR(text);
        at += length;
    }
    return text;
}

/* Find strings in each run of marked segments.  Returns 0, or -1 and an exception. */
static int find_in_segments(const Finder *self, const struct segments *segments, PyObject *text,
                            struct matches *matches)
{
    Py_ssize_t n = PyTuple_GET_SIZE(segments->items), at = 0, start = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        at += PyUnicode_GET_LENGTH(segment_text(segments, i));
        if (!is_marked(segments, i))
            start = at;
        else if (i + 1 == n || !is_marked(segments, i + 1)) {
            if (find_in(self, text, (size_t)start, (size_t)at, matches) < 0)
                return -1;
        }
    }
    return 0;
}

const char encode_segments_doc[] =
    PyDoc_STR("encode_segments(finder, mark, segments, /)\n--\n\n"
              "Do what encode_around does with the text that segments make, joined.\n\n"
              "Args:\n"
              "    mark: strings stand for their ids in runs of segments with this object alone.\n"
              "    segments: a list of (text, object) pairs.\n\n"
              "Returns:\n"
              "    What encode_around returns; None if an object is true, but not the mark.");

PyObject *encoder_encode_segments(Encoder *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args != 3 || !finder_of(args[0])) {
        PyErr_SetString(PyExc_TypeError, "encode_segments() takes a Finder, a mark and a list");
        return NULL;
    }
    const Finder *finder = (const Finder *)args[0];
    struct segments segments = {.items = items_of_list(args[2], "segments"), .mark = args[1]};
    if (!segments.items)
        return NULL;
    PyObject *list = NULL, *text = NULL;
    struct matches matches = {0};
    int measured = measure_segments(&segments);
    if (measured > 0)
        text = join_segments(&segments);
    if (measured == 0 || (text && !is_plain(self, text)))
        list = Py_NewRef(Py_None);
    else if (text && find_in_segments(finder, &segments, text, &matches) == 0)
        list = encode_matches(self, text, finder, &matches, list_of);
    free(matches.items);
    Py_XDECREF(text);
    Py_DECREF(segments.items);
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
