/* From ids back to bytes. */

#include "binding/encoder.h"
#include "binding/ids.h"

enum { AHEAD = 32 }; /* tokens fetched ahead of their use */

/* Write the bytes of tokens, which take just the room there is. */
static void write_tokens(const struct tokens *tokens, const struct ids *ids, uint8_t *out)
{
    const uint8_t *end = out + ids->length;
    for (Py_ssize_t i = 0; i < ids->n; i++) {
#if defined(__GNUC__)
        if (i + AHEAD < ids->n)
            __builtin_prefetch(tokens->by_slot + (size_t)ids->ids[i + AHEAD] * SLOT_BYTES);
#endif
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
                                    "    TypeError: it is no list, tuple or buffer of integers.");

PyObject *encoder_decode(Encoder *self, PyObject *object)
{
    struct ids ids;
    if (read_ids(&self->tokens, object, &ids) < 0)
        return NULL;
    PyObject *bytes = NULL;
    if (check_length(&ids) == 0)
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)ids.length);
    if (bytes)
        write_tokens(&self->tokens, &ids, (uint8_t *)PyBytes_AS_STRING(bytes));
    release_ids(&ids);
    return bytes;
}

/* -- To text --------------------------------------------------------------------------------- */

static bool is_ascii(const uint8_t *bytes, size_t length)
{
    uint8_t any = 0;
    for (size_t i = 0; i < length; i++) /* compiled to wide instructions */
        any |= bytes[i];
    return any < 0x80;
}

/* The text of tokens.  The bytes are written where those of an ASCII string belong, which they
 * mostly are; else they are decoded from there. */
static PyObject *text_of(const Encoder *self, const struct ids *ids, const char *errors)
{
    if (!ids->length)
        return PyUnicode_New(0, 0); /* a string that others have, too */
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

PyObject *encoder_decode_to_str(Encoder *self, PyObject *args)
{
    PyObject *object;
    const char *errors;
    struct ids ids;
    if (!PyArg_ParseTuple(args, "Os", &object, &errors) ||
        read_ids(&self->tokens, object, &ids) < 0)
        return NULL;
    PyObject *text = text_of(self, &ids, errors);
    release_ids(&ids);
    return text;
}
