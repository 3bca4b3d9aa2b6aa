/* From ids back to bytes, and to text. */

#include "binding/encoder.h"
#include "binding/ids.h"
#include "binding/text.h"
#include "scan/scan.h"

enum {
    AHEAD = 32, /* tokens fetched ahead of their use */
    SCRATCH = 1 << 18,
};

#if defined(__GNUC__)
#define PREFETCH(p) __builtin_prefetch(p)
#else
#define PREFETCH(p) ((void)(p))
#endif

static inline const uint8_t *slot_of(const struct tokens *tokens, uint32_t id)
{
    return tokens->by_slot + (size_t)id * SLOT_BYTES;
}

/* The ids to leave out: those from `low` on whose flag is set. */
struct left_out {
    uint32_t low;
    size_t n;
    const char *flags;
};

static inline bool is_left_out(const struct left_out *left_out, uint32_t id)
{
    size_t at = (size_t)id - left_out->low; /* too large, if it is below */
    return at < left_out->n && left_out->flags[at];
}

/* -- In one pass ----------------------------------------------------------------------------- */

/* Write the tokens of plain ints, all of them read and looked up once, without those to leave out, if
 * any are given; runs no Python code.  Returns the end; NULL if an int is not plain or has no token,
 * or there is too little room: 16 bytes for each token are enough, if none is longer.
 *
 * What a token needs is in two places that can't be predicted: the int object and the slot.  Each
 * is fetched well before its use, while others are written.
 *
 * INVARIANT: there are always 16 bytes left for each token that is not written yet. */
ALWAYS_INLINE uint8_t *write_ints(const struct tokens *tokens, PyObject *const *items, Py_ssize_t n,
                                  const struct left_out *left_out, uint8_t *out, const uint8_t *end)
{
    uint32_t read[2][AHEAD];
    if (end - out < n * SLOT_BYTES)
        return NULL;
    for (Py_ssize_t i = 0; i < n && i < AHEAD; i++)
        PREFETCH(items[i]);
    for (Py_ssize_t at = 0; at < n + AHEAD; at += AHEAD) {
        uint32_t *next = read[at / AHEAD % 2], *ready = read[at / AHEAD % 2 ^ 1];
        for (Py_ssize_t i = at; i < at + AHEAD && i < n; i++) {
            if (i + AHEAD < n)
                PREFETCH(items[i + AHEAD]);
            uint32_t id = small_int(items[i]);
            if (id >= tokens->n_ids)
                return NULL;
            PREFETCH(slot_of(tokens, id));
            next[i - at] = id;
        }
        for (Py_ssize_t i = at - AHEAD; at && i < at && i < n; i++) {
            uint32_t id = ready[i - at + AHEAD];
            if (left_out && is_left_out(left_out, id))
                continue;
            const uint8_t *slot = slot_of(tokens, id);
            size_t length = slot[IN_SLOT];
            if (length <= IN_SLOT) {
                memcpy(out, slot, SLOT_BYTES); /* one more than there may be: quicker */
            } else {
                struct token token = tokens->by_id[id];
                length = token.length;
                if (token.at == NO_TOKEN || (size_t)(end - out) < length + (n - i) * SLOT_BYTES)
                    return NULL;
                memcpy(out, tokens->bytes + token.at, length);
            }
            out += length;
        }
    }
    return out;
}

/* Room for the text of a list that is not long; NULL and an exception if memory is short. */
static uint8_t *take_scratch(Encoder *self)
{
    uint8_t *scratch = atomic_exchange(&self->scratch, NULL);
    if (!scratch && !(scratch = PyMem_Malloc(SCRATCH + UTF8_SLACK)))
        PyErr_NoMemory();
    return scratch;
}

static void put_back_scratch(Encoder *self, uint8_t *scratch)
{
    PyMem_Free(atomic_exchange(&self->scratch, scratch)); /* another thread's, or none */
}

/* The text of a list of plain ints, if it is not long, or its bytes if `errors` is NULL.
 * Returns 1 if so, 0 if not, or -1 and an exception. */
static int decode_quickly(Encoder *self, PyObject *list, const char *errors, PyObject **made)
{
    Py_ssize_t n = PyList_GET_SIZE(list);
    if (n > SCRATCH / SLOT_BYTES)
        return 0;
    uint8_t *scratch = take_scratch(self);
    if (!scratch)
        return -1;
    const uint8_t *end = write_ints(&self->tokens, ((PyListObject *)list)->ob_item, n, NULL,
                                    scratch, scratch + SCRATCH);
    if (end && errors)
        *made = str_of_utf8(scratch, (size_t)(end - scratch), errors);
    else if (end)
        *made = PyBytes_FromStringAndSize((const char *)scratch, end - scratch);
    put_back_scratch(self, scratch);
    return !end ? 0 : *made ? 1 : -1;
}

/* -- In two passes: the first has found the length ------------------------------------------- */

/* Write the bytes of tokens, which fill the room exactly. */
static void write_tokens(const struct tokens *tokens, const struct ids *ids, uint8_t *out)
{
    const uint8_t *end = out + ids->length;
    for (Py_ssize_t i = 0; i < ids->n; i++) {
        if (i + AHEAD < ids->n)
            PREFETCH(slot_of(tokens, ids->ids[i + AHEAD]));
        const uint8_t *slot = slot_of(tokens, ids->ids[i]);
        if (slot[IN_SLOT] <= IN_SLOT && end - out >= SLOT_BYTES) {
            memcpy(out, slot, SLOT_BYTES);
            out += slot[IN_SLOT];
        } else {
            struct token token = tokens->by_id[ids->ids[i]];
            memcpy(out, tokens->bytes + token.at, token.length);
            out += token.length;
        }
    }
}

static int check_length(const struct ids *ids)
{
    if (ids->length <= PY_SSIZE_T_MAX / 2)
        return 0;
    PyErr_NoMemory();
    return -1;
}

const char decode_doc[] = PyDoc_STR("decode(ids, /)\n--\n\n"
                                    "Join the bytes of tokens.\n\n"
                                    "Raises:\n"
                                    "    KeyError: an id has no token.\n"
                                    "    TypeError: it is not a list, a tuple or a buffer of integers.");

PyObject *encoder_decode(Encoder *self, PyObject *object)
{
    struct ids ids;
    PyObject *bytes = NULL;
    int status = 0;
    if (PyList_CheckExact(object))
        LOCKED(object, status = decode_quickly(self, object, NULL, &bytes));
    if (status)
        return bytes;
    if (read_ids(&self->tokens, object, &ids) < 0)
        return NULL;
    if (check_length(&ids) == 0)
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)ids.length);
    if (bytes)
        write_tokens(&self->tokens, &ids, (uint8_t *)PyBytes_AS_STRING(bytes));
    release_ids(&ids);
    return bytes;
}

/* -- To text --------------------------------------------------------------------------------- */

/* The text of tokens.  The bytes are written to where an ASCII string has them, because most text
 * is ASCII; otherwise they are decoded from there. */
static PyObject *text_of(const Encoder *self, const struct ids *ids, const char *errors)
{
    if (!ids->length)
        return PyUnicode_New(0, 0); /* the shared empty string */
    if (check_length(ids) < 0)
        return NULL;
    PyObject *text = PyUnicode_New((Py_ssize_t)ids->length, 0x7F);
    if (!text)
        return NULL;
    uint8_t *bytes = PyUnicode_1BYTE_DATA(text);
    write_tokens(&self->tokens, ids, bytes);
    if (is_ascii(bytes, ids->length))
        return text;
    PyObject *decoded = PyUnicode_DecodeUTF8((const char *)bytes, (Py_ssize_t)ids->length, errors);
    Py_DECREF(text);
    return decoded;
}

const char decode_to_str_doc[] =
    PyDoc_STR("decode_to_str(ids, errors, /)\n--\n\n"
              "Do what decode(ids).decode('utf-8', errors) does.");

PyObject *encoder_decode_to_str(Encoder *self, PyObject *const *args, Py_ssize_t n_args)
{
    const char *errors = n_args == 2 && PyUnicode_Check(args[1]) ? PyUnicode_AsUTF8(args[1]) : NULL;
    if (!errors) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "decode_to_str() takes ids and a str");
        return NULL;
    }
    PyObject *list = args[0], *text = NULL;
    int status = 0;
    if (PyList_CheckExact(list))
        LOCKED(list, status = decode_quickly(self, list, errors, &text));
    if (status)
        return text;
    struct ids ids;
    if (read_ids(&self->tokens, list, &ids) < 0)
        return NULL;
    text = text_of(self, &ids, errors);
    release_ids(&ids);
    return text;
}

/* -- Without some ids ------------------------------------------------------------------------- */

/* How many items of a list are kept; -1 if one is not an int. */
static Py_ssize_t count_kept(PyObject *list, const struct left_out *left_out)
{
    PyObject *const *items = ((PyListObject *)list)->ob_item;
    Py_ssize_t n = PyList_GET_SIZE(list), n_kept = n;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            PREFETCH(items[i + AHEAD]);
        if (!PyLong_CheckExact(items[i]))
            return -1;
        n_kept -= is_left_out(left_out, small_int(items[i]));
    }
    return n_kept;
}

/* Copy a list without some ids, or return it as it is if it has none of them.  None if it is not a
 * list of ints; NULL and an exception if memory is short.  Making a list may run code that changes
 * the other one, so it is checked again. */
static PyObject *copy_without(PyObject *list, const struct left_out *left_out)
{
    Py_ssize_t n_kept = count_kept(list, left_out), at = 0;
    if (n_kept == PyList_GET_SIZE(list))
        return Py_NewRef(list);
    PyObject *kept = n_kept < 0 ? Py_NewRef(Py_None) : PyList_New(n_kept);
    if (!kept || n_kept < 0)
        return kept;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list) && at < n_kept; i++) {
        PyObject *item = PyList_GET_ITEM(list, i);
        if (!is_left_out(left_out, small_int(item)))
            PyList_SET_ITEM(kept, at++, Py_NewRef(item));
    }
    if (at == n_kept)
        return kept;
    Py_DECREF(kept);
    Py_RETURN_NONE;
}

const char without_doc[] =
    PyDoc_STR("without(ids, low, flags, /)\n--\n\n"
              "Leave out the ids from `low` on whose byte in `flags` is not 0.\n\n"
              "Returns:\n"
              "    A list, `ids` itself if nothing was removed; None if it is not a list of ints.");

PyObject *encoder_without(Encoder *Py_UNUSED(self), PyObject *args)
{
    PyObject *list, *flags, *kept;
    struct left_out left_out;
    if (!PyArg_ParseTuple(args, "OIS", &list, &left_out.low, &flags))
        return NULL;
    if (!PyList_CheckExact(list))
        Py_RETURN_NONE;
    left_out.n = (size_t)PyBytes_GET_SIZE(flags);
    left_out.flags = PyBytes_AS_STRING(flags);
    LOCKED(list, kept = copy_without(list, &left_out));
    return kept;
}

/* -- Many rows of ids -------------------------------------------------------------------------- */

/* How rows become text. */
struct decoding {
    const char *errors;
    uint32_t pad; /* left out at both ends of a row; NO_TOKEN if nothing is */
    struct left_out left_out;
};

/* The text of the plain ints of a list, if it is not long.  Returns 1 if so, 0 if not, or -1 and an
 * exception. */
static int decode_row_quickly(Encoder *self, PyObject *list, const struct decoding *how,
                              uint8_t *scratch, PyObject **text)
{
    PyObject *const *items = ((PyListObject *)list)->ob_item;
    Py_ssize_t n = PyList_GET_SIZE(list);
    if (how->pad != NO_TOKEN) {
        while (n && small_int(items[n - 1]) == how->pad)
            n--;
        while (n && small_int(*items) == how->pad)
            items++, n--;
    }
    if (n > SCRATCH / SLOT_BYTES)
        return 0;
    const struct left_out *left_out = how->left_out.n ? &how->left_out : NULL;
    const uint8_t *end = write_ints(&self->tokens, items, n, left_out, scratch, scratch + SCRATCH);
    if (!end)
        return 0;
    *text = str_of_utf8(scratch, (size_t)(end - scratch), how->errors);
    return *text ? 1 : -1;
}

/* The text of ids, without those to leave out.  Releases them. */
static PyObject *text_of_some(const Encoder *self, struct ids *ids, const struct decoding *how)
{
    Py_ssize_t at = 0, end = ids->n, n = 0;
    while (end && ids->ids[end - 1] == how->pad)
        end--;
    while (at < end && ids->ids[at] == how->pad)
        at++;
    for (ids->length = 0; at < end; at++) {
        uint32_t id = ids->ids[at];
        if (is_left_out(&how->left_out, id))
            continue;
        ids->ids[n++] = id;
        ids->length += token_length(&self->tokens, id);
    }
    ids->n = n;
    PyObject *text = text_of(self, ids, how->errors);
    release_ids(ids);
    return text;
}

static PyObject *text_of_row(Encoder *self, PyObject *row, const struct decoding *how,
                             uint8_t *scratch)
{
    struct ids ids;
    PyObject *text = NULL;
    int status = 0;
    if (PyList_CheckExact(row))
        LOCKED(row, status = decode_row_quickly(self, row, how, scratch, &text));
    if (status)
        return text;
    return read_ids(&self->tokens, row, &ids) < 0 ? NULL : text_of_some(self, &ids, how);
}

/* Put a text into a list.  Returns 0, or -1 if it is NULL. */
static int put_text(PyObject *list, Py_ssize_t at, PyObject *text)
{
    if (!text)
        return -1;
    PyList_SET_ITEM(list, at, text);
    return 0;
}

/* The texts of rows in a list.  Reading a row may run code that changes the list, so copy it. */
static PyObject *texts_of_list(Encoder *self, PyObject *rows, const struct decoding *how)
{
    PyObject *tuple = tuple_of_list(rows);
    PyObject *texts = tuple ? PyList_New(PyTuple_GET_SIZE(tuple)) : NULL;
    uint8_t *scratch = texts ? take_scratch(self) : NULL;
    int status = scratch ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(tuple); i++)
        status = put_text(texts, i, text_of_row(self, PyTuple_GET_ITEM(tuple, i), how, scratch));
    if (scratch)
        put_back_scratch(self, scratch);
    if (status < 0)
        Py_CLEAR(texts);
    Py_XDECREF(tuple);
    return texts;
}

static PyObject *texts_of_array(Encoder *self, PyObject *array, const struct decoding *how)
{
    Py_buffer view;
    struct ids ids;
    if (get_buffer(array, &view) < 0)
        return NULL;
    PyObject *texts = NULL;
    if (view.ndim == 2)
        texts = PyList_New(view.shape[0]);
    else
        PyErr_SetString(PyExc_TypeError, "expected a list or a two-dimensional buffer");
    for (Py_ssize_t i = 0; texts && i < view.shape[0]; i++)
        if (read_ids_of_row(&self->tokens, &view, i, &ids) < 0 ||
            put_text(texts, i, text_of_some(self, &ids, how)) < 0)
            Py_CLEAR(texts);
    PyBuffer_Release(&view);
    return texts;
}

const char decode_rows_doc[] =
    PyDoc_STR("decode_rows(rows, errors, pad, low, flags, /)\n--\n\n"
              "Do what decode_to_str does for each row, without the id `pad` at both ends, and without\n"
              "the ids that `low` and `flags` tell `without` to leave out.\n\n"
              "Args:\n"
              "    rows: a list of rows that decode_to_str takes, or a two-dimensional buffer.\n"
              "    pad: an id; -1 keeps everything at the ends.\n\n"
              "Raises:\n"
              "    KeyError: an id has no token, whether it is left out or not.\n"
              "    TypeError: the rows are something else.");

PyObject *encoder_decode_rows(Encoder *self, PyObject *args)
{
    PyObject *rows, *flags;
    struct decoding how;
    long long pad;
    if (!PyArg_ParseTuple(args, "OsLIS", &rows, &how.errors, &pad, &how.left_out.low, &flags))
        return NULL;
    how.pad = pad < 0 || pad >= (long long)self->tokens.n_ids ? NO_TOKEN : (uint32_t)pad;
    how.left_out.n = (size_t)PyBytes_GET_SIZE(flags);
    how.left_out.flags = PyBytes_AS_STRING(flags);
    return PyList_CheckExact(rows) ? texts_of_list(self, rows, &how)
                                   : texts_of_array(self, rows, &how);
}
