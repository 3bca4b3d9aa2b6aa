/* Python's side of vocabulary files.
 *
 * Only files that are written exactly as nearly all of them are.  For any other, damaged ones
 * included, the answer is None: Python reads them, and says what is wrong. */

#include "binding/files.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MAX_FILE_ID ((uint64_t)INT32_MAX) /* _MAX_ID of bpe_tokenizer.py */

struct text {
    const uint8_t *at, *end;
};

/* -- Ranks ----------------------------------------------------------------------------------- */

/* The six bits of a character of base64, or -1. */
static int sextet(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decode `size` characters of base64, padding not counted.  False if it is not what an encoder
 * writes. */
static bool decode_base64(const uint8_t *text, size_t size, char *out)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < size; i++) {
        int six = sextet(text[i]);
        if (six < 0)
            return false;
        bits = bits << 6 | (uint32_t)six;
        if (i % 4)
            *out++ = (char)(uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    return size % 4 != 1 && !(bits & (size % 4 == 2 ? 0xF : size % 4 == 3 ? 3 : 0));
}

/* Read a token in base64.  Returns NULL with an exception if memory is short, without one if it is
 * not what an encoder writes. */
static PyObject *read_base64(struct text *text)
{
    const uint8_t *start = text->at, *space = memchr(start, ' ', (size_t)(text->end - start));
    if (!space || space == start || (space - start) % 4)
        return NULL;
    size_t padding = space[-1] == '=' ? 1 + (space[-2] == '=') : 0;
    size_t size = (size_t)(space - start) - padding;
    PyObject *token = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(size * 3 / 4));
    if (token && !decode_base64(start, size, PyBytes_AS_STRING(token)))
        Py_CLEAR(token);
    text->at = space + 1;
    return token;
}

/* Read a number in decimal.  False if it is too large, or no number as it is usually written. */
static bool read_number(struct text *text, uint64_t *number)
{
    const uint8_t *start = text->at;
    for (*number = 0; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++)
        if ((*number = *number * 10 + (*text->at - '0')) > MAX_FILE_ID)
            return false;
    return text->at > start && (*start != '0' || text->at == start + 1);
}

/* Add the token and the rank on one line to a dict.  Returns 1; 0 if the line is not plain, or its
 * rank less than `least`; -1 and an exception if memory is short. */
static int read_rank(struct text *text, PyObject *ranks, uint64_t least, uint64_t *rank)
{
    int status = 0;
    PyObject *number = NULL, *token = read_base64(text);
    if (token && read_number(text, rank) && *rank >= least &&
        (text->at == text->end || *text->at++ == '\n'))
        status = (number = PyLong_FromUnsignedLongLong(*rank)) &&
                         PyDict_SetItem(ranks, token, number) == 0
                     ? 1
                     : -1;
    Py_XDECREF(number);
    Py_XDECREF(token);
    return PyErr_Occurred() ? -1 : status;
}

PyDoc_STRVAR(read_ranks_doc,
             "read_ranks(data, /)\n--\n\n"
             "Read the content of a .tiktoken file.\n\n"
             "Returns:\n"
             "    Token -> rank, in the order of the file; None if it is not plain: each line one\n"
             "    token in base64, a space and the rank; ranks rise, and no token is there twice.");

static PyObject *read_ranks(PyObject *Py_UNUSED(module), PyObject *data)
{
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "data must be bytes");
        return NULL;
    }
    struct text text = {(const uint8_t *)PyBytes_AS_STRING(data), NULL};
    text.end = text.at + PyBytes_GET_SIZE(data);
    while (text.end > text.at && text.end[-1] == '\n')
        text.end--;
    PyObject *ranks = PyDict_New();
    Py_ssize_t lines = 0;
    int status = ranks ? 1 : -1;
    for (uint64_t rank = 0; status == 1 && text.at < text.end; lines++)
        status = read_rank(&text, ranks, lines ? rank + 1 : 0, &rank);
    if (status == 1 && PyDict_GET_SIZE(ranks) == lines)
        return ranks;
    Py_XDECREF(ranks);
    if (status < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef files_methods[] = {
    {"read_ranks", read_ranks, METH_O, read_ranks_doc},
    {NULL, NULL, 0, NULL},
};
