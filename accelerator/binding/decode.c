/* From ids back to bytes. */

#include "binding/encoder.h"
#include "binding/ids.h"

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
