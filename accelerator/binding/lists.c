/* What an encoder was made from, as Python's objects.  They take three times the memory of the
 * encoder, so they are made on demand, and not kept. */

#include "binding/encoder.h"
#include "binding/ids.h"
#include "binding/ranks.h"

static PyObject *bytes_of(const Encoder *self, uint32_t id)
{
    struct token token = self->tokens.by_id[id];
    return PyBytes_FromStringAndSize((const char *)self->tokens.bytes + token.at,
                                     (Py_ssize_t)token.length);
}

const char token_doc[] = PyDoc_STR("token(id, /)\n--\n\n"
                                   "Return the bytes of a token; None if not a plain int, or no id.");

PyObject *encoder_token(Encoder *self, PyObject *object)
{
    uint32_t id = small_int(object);
    if (!tokens_have(&self->tokens, id))
        Py_RETURN_NONE;
    return bytes_of(self, id);
}

const char id_of_doc[] = PyDoc_STR("id_of(token, /)\n--\n\n"
                                  "Return the id of a token of the vocabulary, given as bytes; "
                                  "None if it has no such token.");

PyObject *encoder_id_of(Encoder *self, PyObject *token)
{
    uint32_t id = NO_TOKEN;
    if (PyBytes_Check(token)) {
        const uint8_t *bytes = (const uint8_t *)PyBytes_AS_STRING(token);
        id = tokens_find(&self->tokens, bytes, (size_t)PyBytes_GET_SIZE(token), bytes, 0);
    }
    if (id == NO_TOKEN)
        Py_RETURN_NONE;
    return int_of_id(self, id);
}

const char listed_doc[] = PyDoc_STR("listed(with_added, /)\n--\n\n"
                                    "Return a list of the tokens, in the order of the vocabulary, "
                                    "and one of their ids.");

PyObject *encoder_listed(Encoder *self, PyObject *with_added)
{
    Py_ssize_t n = with_added == Py_True ? self->lists.n_ids : self->lists.n_vocab;
    PyObject *tokens = PyList_New(n), *ids = tokens ? PyList_New(n) : NULL;
    for (Py_ssize_t i = 0; ids && i < n; i++) {
        PyObject *token = bytes_of(self, self->lists.ids[i]);
        PyObject *id = token ? PyLong_FromLong((long)self->lists.ids[i]) : NULL;
        if (!id) {
            Py_XDECREF(token);
            Py_CLEAR(ids);
            break;
        }
        PyList_SET_ITEM(tokens, i, token);
        PyList_SET_ITEM(ids, i, id);
    }
    PyObject *both = ids ? PyTuple_Pack(2, tokens, ids) : NULL;
    Py_XDECREF(tokens);
    Py_XDECREF(ids);
    return both;
}

const char merges_doc[] = PyDoc_STR("merges(start, end, /)\n--\n\n"
                                    "Return the merges from one rank to another, pairs of ids.");

PyObject *encoder_merges(Encoder *self, PyObject *args)
{
    Py_ssize_t start, end, most = (Py_ssize_t)self->lists.n_merges;
    if (!PyArg_ParseTuple(args, "nn:merges", &start, &end))
        return NULL;
    end = end < 0 ? 0 : end > most ? most : end;
    start = start < 0 ? 0 : start > end ? end : start;
    PyObject *list = PyList_New(end - start);
    for (Py_ssize_t i = start; list && i < end; i++) {
        struct id_pair merge = self->lists.merges[i];
        PyObject *left = PyLong_FromLong((long)merge.left);
        PyObject *right = PyLong_FromLong((long)merge.right);
        PyObject *pair = left && right ? pair_of(left, right) : NULL;
        Py_XDECREF(left);
        Py_XDECREF(right);
        if (!pair) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i - start, pair);
    }
    return list;
}
