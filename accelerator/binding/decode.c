/* From ids back to text: decoding, and which characters each token is of. */

#include "binding/encoder.h"
#include "binding/text.h"

enum {
    AHEAD = 32,           /* ids that are looked at ahead of their use */
    IDS_ON_STACK = 1024,
};

/* -- Reading ids ----------------------------------------------------------------------------- */

/* Read a plain int of up to 30 bits.  Returns NO_TOKEN for anything else. */
static inline uint32_t small_int(PyObject *object)
{
    if (!PyLong_CheckExact(object))
        return NO_TOKEN;
#if PY_VERSION_HEX >= 0x030C0000
    if (!PyUnstable_Long_IsCompact((PyLongObject *)object))
        return NO_TOKEN;
    Py_ssize_t value = PyUnstable_Long_CompactValue((PyLongObject *)object);
    return value < 0 ? NO_TOKEN : (uint32_t)value;
#else
    Py_ssize_t digits = Py_SIZE(object);
    if (digits != 0 && digits != 1)
        return NO_TOKEN;
    return digits ? ((PyLongObject *)object)->ob_digit[0] : 0;
#endif
}

/* Read ids, and the length of their tokens together; runs no Python code.  Returns how many were
 * read: less than n if one is no plain int, or has no token. */
static Py_ssize_t read_plain(const struct tokens *tokens, PyObject *const *items, Py_ssize_t n,
                             uint32_t *ids, size_t *length)
{
    size_t total = 0;
    Py_ssize_t i = 0;
    for (; i < n; i++) {
#if defined(__GNUC__)
        if (i + AHEAD < n)
            __builtin_prefetch(items[i + AHEAD]);
#endif
        uint32_t id = small_int(items[i]);
        if (id >= tokens->n_ids)
            break;
        uint32_t length = tokens->by_slot[(size_t)id * SLOT_BYTES];
        if (length > IN_SLOT) {
            if (length == NOT_IN_SLOT)
                break;
            length = tokens->by_id[id].length;
        }
        ids[i] = id;
        total += length;
    }
    *length = total;
    return i;
}

/* Read ids from any sequence of integers.  Returns 0, or -1 and an exception. */
static int read_any(const struct tokens *tokens, PyObject *items, uint32_t *ids, size_t *length)
{
    size_t total = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        PyObject *number = PyNumber_Index(PyTuple_GET_ITEM(items, i));
        if (!number)
            return -1;
        int overflow;
        long id = PyLong_AsLongAndOverflow(number, &overflow);
        Py_DECREF(number);
        if (id < 0 || id >= (long)tokens->n_ids || !tokens_have(tokens, (uint32_t)id)) {
            PyErr_SetObject(PyExc_KeyError, PyTuple_GET_ITEM(items, i));
            return -1;
        }
        ids[i] = (uint32_t)id;
        total += tokens->by_id[id].length;
    }
    *length = total;
    return 0;
}

/* Some ids that were read. */
struct ids {
    uint32_t *ids;
    Py_ssize_t n;
    size_t length; /* of all their tokens */
    uint32_t on_stack[IDS_ON_STACK];
};

static void release_ids(struct ids *ids)
{
    if (ids->ids != ids->on_stack)
        PyMem_Free(ids->ids);
}

static int make_room(struct ids *ids, Py_ssize_t n)
{
    ids->n = n;
    ids->ids = n <= IDS_ON_STACK ? ids->on_stack : PyMem_New(uint32_t, n);
    if (ids->ids)
        return 0;
    PyErr_NoMemory();
    return -1;
}

/* Read the ids of a list, if all of them are plain.  Returns 1 if so, 0 if not, or -1 and an
 * exception. */
static int read_list(const struct tokens *tokens, PyObject *list, struct ids *ids)
{
    if (make_room(ids, PyList_GET_SIZE(list)) < 0)
        return -1;
    PyObject *const *items = ((PyListObject *)list)->ob_item;
    return read_plain(tokens, items, ids->n, ids->ids, &ids->length) == ids->n;
}

/* Read the ids of any iterable.  Returns 0, or -1 and an exception; release them after 0. */
static int read_ids(const struct tokens *tokens, PyObject *object, struct ids *ids)
{
    if (PyList_CheckExact(object)) {
        int status;
        LOCKED(object, status = read_list(tokens, object, ids));
        if (status < 0)
            return -1;
        if (status)
            return 0;
        release_ids(ids);
    }
    PyObject *items = PySequence_Tuple(object);
    if (!items)
        return -1;
    int status = make_room(ids, PyTuple_GET_SIZE(items));
    if (status == 0 && (status = read_any(tokens, items, ids->ids, &ids->length)) < 0)
        release_ids(ids);
    Py_DECREF(items);
    return status;
}

/* -- Decoding -------------------------------------------------------------------------------- */

/* Write the bytes of tokens, which take just the room there is. */
static void write_tokens(const struct tokens *tokens, const struct ids *ids, uint8_t *out)
{
    const uint8_t *end = out + ids->length;
    for (Py_ssize_t i = 0; i < ids->n; i++) {
        const uint8_t *slot = tokens->by_slot + (size_t)ids->ids[i] * SLOT_BYTES;
        if (slot[0] <= IN_SLOT && end - out >= SLOT_BYTES) {
            memcpy(out, slot + 1, SLOT_BYTES); /* one more than there may be: quicker */
            out += slot[0];
        } else {
            struct token token = tokens->by_id[ids->ids[i]];
            memcpy(out, tokens->bytes + token.at, token.length);
            out += token.length;
        }
    }
}

const char decode_doc[] = PyDoc_STR("decode(ids, /)\n--\n\n"
                                    "Join the bytes of tokens.\n\n"
                                    "Raises:\n"
                                    "    KeyError: an id has no token.");

PyObject *encoder_decode(Encoder *self, PyObject *object)
{
    struct ids ids;
    if (read_ids(&self->tokens, object, &ids) < 0)
        return NULL;
    PyObject *bytes = NULL;
    if (ids.length > PY_SSIZE_T_MAX / 2)
        PyErr_NoMemory();
    else
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)ids.length);
    if (bytes)
        write_tokens(&self->tokens, &ids, (uint8_t *)PyBytes_AS_STRING(bytes));
    release_ids(&ids);
    return bytes;
}

/* -- Offsets --------------------------------------------------------------------------------- */

/* A place in a text: a character, and where its bytes begin and end in UTF-8. */
struct place {
    Py_ssize_t character;
    size_t begin, end;
};

static unsigned utf8_width(Py_UCS4 c)
{
    return 1 + (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
}

/* Move on to the character that a byte is in, which must not be behind the text. */
static void move_to(struct place *place, PyObject *text, size_t byte)
{
    if (PyUnicode_IS_ASCII(text)) {
        *place = (struct place){(Py_ssize_t)byte, byte, byte + 1};
        return;
    }
    while (place->end <= byte) {
        place->character += place->end != 0;
        place->begin = place->end;
        place->end += utf8_width(PyUnicode_READ_CHAR(text, place->character));
    }
}

static size_t utf8_length(PyObject *text)
{
    Py_ssize_t n = PyUnicode_GET_LENGTH(text);
    if (PyUnicode_IS_ASCII(text))
        return (size_t)n;
    size_t length = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        length += utf8_width(PyUnicode_READ_CHAR(text, i));
    return length;
}

/* An int; the encoder has those that are ids ready. */
static PyObject *int_of(const Encoder *self, Py_ssize_t value)
{
    if (value >= (Py_ssize_t)self->tokens.n_ids)
        return PyLong_FromSsize_t(value);
    PyObject *number = self->ints[value];
    Py_INCREF(number);
    return number;
}

static PyObject *span_of(const Encoder *self, Py_ssize_t start, Py_ssize_t end)
{
    PyObject *span = PyTuple_New(2), *first = int_of(self, start), *last = int_of(self, end);
    if (!span || !first || !last) {
        Py_XDECREF(span);
        Py_XDECREF(first);
        Py_XDECREF(last);
        return NULL;
    }
    PyTuple_SET_ITEM(span, 0, first);
    PyTuple_SET_ITEM(span, 1, last);
    PyObject_GC_UnTrack(span); /* it can be in no cycle */
    return span;
}

/* The spans of tokens that make up the text, all bytes of it. */
static PyObject *spans_of(const Encoder *self, PyObject *text, const struct ids *ids)
{
    PyObject *list = PyList_New(ids->n);
    struct place place = {0, 0, 0};
    size_t byte = 0;
    for (Py_ssize_t i = 0; list && i < ids->n; i++) {
        size_t length = self->tokens.by_id[ids->ids[i]].length;
        Py_ssize_t start = 0, end = 0;
        if (length) { /* only tokens that no text gives have none */
            move_to(&place, text, byte);
            start = place.character;
            byte += length;
            move_to(&place, text, byte - 1);
            end = place.character + 1;
        }
        PyObject *span = span_of(self, start, end);
        if (span)
            PyList_SET_ITEM(list, i, span);
        else
            Py_CLEAR(list);
    }
    return list;
}

const char offsets_doc[] =
    PyDoc_STR("offsets(text, ids, /)\n--\n\n"
              "Return the (start, end) of the characters that each token has bytes of.\n\n"
              "Raises:\n"
              "    KeyError: an id has no token.\n"
              "    ValueError: the ids are not those of the text.");

PyObject *encoder_offsets(Encoder *self, PyObject *args)
{
    PyObject *text, *object;
    struct ids ids;
    if (!PyArg_ParseTuple(args, "OO", &text, &object) || check_string(text) < 0 ||
        read_ids(&self->tokens, object, &ids) < 0)
        return NULL;
    PyObject *spans = NULL;
    if (ids.length == utf8_length(text))
        spans = spans_of(self, text, &ids);
    else
        PyErr_SetString(PyExc_ValueError, "the ids are not those of the text");
    release_ids(&ids);
    return spans;
}
