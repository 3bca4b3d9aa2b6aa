/* Python's side of vocabulary files.
 *
 * This reads only files in the form that nearly all have.  For any other file, damaged ones
 * included, the answer is None: then Python reads it, and reports any error. */

#include "binding/files.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "binding/ranks.h"
#include "binding/text.h"
#include "encode/tokens.h"
#include "encode/vocabulary.h"

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
             "    Token -> rank, in the order of the file; None if it is not plain: each line a token\n"
             "    in base64, a space and the rank; ranks rise, and each token occurs once.");

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

/* -- JSON ------------------------------------------------------------------------------------ */

/* Functions that read something return false where it is not plain: see the top of this file. */

static void skip_space(struct text *text)
{
    while (text->at < text->end &&
           (*text->at == ' ' || *text->at == '\n' || *text->at == '\t' || *text->at == '\r'))
        text->at++;
}

/* Take a character, if it comes next after white space. */
static bool take(struct text *text, uint8_t c)
{
    skip_space(text);
    if (text->at == text->end || *text->at != c)
        return false;
    text->at++;
    return true;
}

/* Go to the end of a string, from after its first quotation mark. */
static bool skip_string(struct text *text)
{
    for (; text->at < text->end; text->at++) {
        if (*text->at == '"') {
            text->at++;
            return true;
        }
        text->at += *text->at == '\\';
    }
    return false;
}

/* Go to the end of any value, which Python reads, and checks, later. */
static bool skip_value(struct text *text)
{
    size_t depth = 0;
    skip_space(text);
    while (text->at < text->end) {
        uint8_t c = *text->at;
        bool closes = c == ']' || c == '}';
        if ((closes || c == ',') && depth == 0)
            return true;
        text->at++;
        if (c == '"' && !skip_string(text))
            return false;
        depth += c == '[' || c == '{';
        depth -= closes;
    }
    return false;
}

/* Read a key that has no escapes, and its colon. */
static bool read_key(struct text *text, const uint8_t **key, size_t *size)
{
    if (!take(text, '"'))
        return false;
    *key = text->at;
    if (!skip_string(text))
        return false;
    *size = (size_t)(text->at - *key) - 1;
    return !memchr(*key, '\\', *size) && take(text, ':');
}

static bool is_key(const uint8_t *key, size_t size, const char *name)
{
    return size == strlen(name) && memcmp(key, name, size) == 0;
}

/* -- The byte alphabet ----------------------------------------------------------------------- */

enum { ALPHABET_CODES = 0x144 };

/* The byte of each code point, or -1: build_char_to_byte of bpe_tokenizer.py. */
static void fill_alphabet(int16_t byte_of[ALPHABET_CODES])
{
    memset(byte_of, 0xFF, ALPHABET_CODES * sizeof *byte_of);
    for (int16_t byte = 0, next = 0x100; byte < 0x100; byte++) {
        bool printable = (byte >= 0x21 && byte < 0x7F) || (byte >= 0xA1 && byte != 0xAD);
        byte_of[printable ? byte : next++] = byte;
    }
}

/* The code point of an escape, after its backslash; only for escapes the alphabet can need. */
static bool read_escape(struct text *text, uint32_t *code)
{
    if (text->at == text->end)
        return false;
    *code = *text->at++;
    if (*code != 'u')
        return *code == '"' || *code == '\\' || *code == '/';
    *code = 0;
    for (int i = 0; i < 4; i++) {
        int c = text->at < text->end ? *text->at++ : 0;
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
        if (digit < 0 || digit > 15 || (c > '9' && digit < 10))
            return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

/* The file, as far as it has been read. */
struct model {
    struct text text;
    int16_t byte_of[ALPHABET_CODES];
    uint8_t *bytes;            /* room for as many bytes as the file has, and slack */
    PyObject *vocab, *others;  /* token -> id, those in the alphabet as bytes, others as text */
    PyObject **ints;           /* the ids in `vocab` as objects, which it owns */
    struct tokens tokens;      /* the same vocabulary */
    PyObject *flags;           /* for each id, the facts about it */
    struct chained *chained;   /* of all merges */
    uint32_t *last_made;       /* 1 + the last merge that makes a token, or 0 */
    uint32_t guess;            /* the id that the next merge probably makes */
    PyObject *merges;
    const uint8_t *cuts[4];    /* where the content of vocab and merges starts and ends */
};

enum { IS_TOKEN = 1, IN_MERGE = 2 };

/* A merge; `before` is 1 + the one before it that makes the same token, or 0. */
struct chained {
    uint32_t left, before;
};

/* Read the bytes of a token until a quotation mark or a space.  Returns which one, or 0 if the
 * token is not written in the alphabet. */
static uint8_t read_token(struct model *model, uint8_t *out, size_t *length)
{
    struct text *text = &model->text;
    for (*length = 0; text->at < text->end;) {
        uint32_t c = *text->at++;
        if (c == '"' || c == ' ')
            return (uint8_t)c;
        if (c == '\\') {
            if (!read_escape(text, &c))
                return 0;
        } else if (c >= 0x80) {
            if (c < 0xC2 || c > 0xDF || text->at == text->end || (*text->at & 0xC0) != 0x80)
                return 0;
            c = (c & 0x1F) << 6 | (*text->at++ & 0x3F);
        }
        if (c >= ALPHABET_CODES || model->byte_of[c] < 0)
            return 0;
        out[(*length)++] = (uint8_t)model->byte_of[c];
    }
    return 0;
}

/* -- The vocabulary -------------------------------------------------------------------------- */

/* The functions below return 1; 0 where something is not plain; -1 and an exception. */

/* Read the text of a key that is not in the alphabet.  NULL, with an exception or without. */
static PyObject *read_other(struct model *model)
{
    const uint8_t *start = model->text.at;
    if (!skip_string(&model->text))
        return NULL;
    size_t size = (size_t)(model->text.at - start) - 1;
    for (size_t i = 0; i < size; i++)
        if (start[i] < 0x20 || start[i] == '\\')
            return NULL;
    PyObject *key = PyUnicode_DecodeUTF8((const char *)start, (Py_ssize_t)size, NULL);
    if (!key && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    return key;
}

static int read_entry(struct model *model)
{
    struct text *text = &model->text;
    if (!take(text, '"'))
        return 0;
    const uint8_t *start = text->at;
    size_t length;
    uint64_t id;
    bool is_plain = read_token(model, model->bytes, &length) == '"' && length;
    text->at = is_plain ? text->at : start;
    PyObject *key = is_plain ? PyBytes_FromStringAndSize((char *)model->bytes, (Py_ssize_t)length)
                             : read_other(model);
    if (!key)
        return PyErr_Occurred() ? -1 : 0;
    int status = 0;
    if (take(text, ':') && (skip_space(text), read_number(text, &id)) && id < MAX_IDS) {
        PyObject *number = PyLong_FromUnsignedLongLong(id);
        PyObject *where = is_plain ? model->vocab : model->others;
        status = number && PyDict_SetItem(where, key, number) == 0 ? 1 : -1;
        Py_XDECREF(number);
    }
    Py_DECREF(key);
    return status;
}

/* Make it possible to find tokens by their bytes. */
static int index_vocab(struct model *model)
{
    PyObject *key, *value;
    uint32_t n_ids = 0;
    uint64_t seed;
    for (Py_ssize_t at = 0; PyDict_Next(model->vocab, &at, &key, &value);) {
        uint32_t id = (uint32_t)PyLong_AsLong(value);
        n_ids = id >= n_ids ? id + 1 : n_ids;
    }
    if (get_seed(&seed) < 0)
        return -1;
    model->ints = PyMem_Calloc(n_ids, sizeof *model->ints);
    model->last_made = PyMem_Calloc(n_ids, sizeof *model->last_made);
    model->flags = PyByteArray_FromStringAndSize(NULL, 0);
    if (!model->ints || !model->last_made || !model->flags ||
        PyByteArray_Resize(model->flags, n_ids) < 0 ||
        tokens_open(&model->tokens, n_ids, seed) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    uint8_t *flags = (uint8_t *)PyByteArray_AS_STRING(model->flags);
    memset(flags, 0, n_ids);
    for (Py_ssize_t at = 0; PyDict_Next(model->vocab, &at, &key, &value);) {
        uint32_t id = (uint32_t)PyLong_AsLong(value);
        if (tokens_have(&model->tokens, id))
            return 0;
        if (tokens_add(&model->tokens, id, (const uint8_t *)PyBytes_AS_STRING(key),
                       (size_t)PyBytes_GET_SIZE(key)) < 0) {
            PyErr_NoMemory();
            return -1;
        }
        model->ints[id] = value;
        flags[id] = IS_TOKEN;
    }
    if (tokens_index(&model->tokens) == 0)
        return 1;
    PyErr_NoMemory();
    return -1;
}

static int read_vocab(struct model *model)
{
    struct text *text = &model->text;
    if (model->vocab || !take(text, '{'))
        return 0;
    model->cuts[0] = text->at;
    model->vocab = PyDict_New();
    model->others = PyDict_New();
    if (!model->vocab || !model->others)
        return -1;
    Py_ssize_t count = 0;
    do {
        int status = read_entry(model);
        if (status != 1)
            return status;
        count++;
    } while (take(text, ','));
    model->cuts[1] = text->at;
    if (!take(text, '}') || PyDict_GET_SIZE(model->vocab) + PyDict_GET_SIZE(model->others) != count)
        return 0;
    return index_vocab(model);
}

/* -- Merges ---------------------------------------------------------------------------------- */

/* Read the two tokens of a merge, one after the other. */
static bool read_parts(struct model *model, size_t *left, size_t *right)
{
    struct text *text = &model->text;
    bool is_list = take(text, '[');
    if (!take(text, '"') || read_token(model, model->bytes, left) != (is_list ? '"' : ' ') || !*left)
        return false;
    if (is_list && !(take(text, ',') && take(text, '"')))
        return false;
    return read_token(model, model->bytes + *left, right) == '"' && *right &&
           (!is_list || take(text, ']'));
}

/* Whether a merge occurred before.  Merges that make the same token differ in their left part,
 * which is a beginning of the token, so there are few. */
static bool is_known(const struct model *model, uint32_t left, uint32_t joined)
{
    for (uint32_t i = model->last_made[joined]; i; i = model->chained[i - 1].before)
        if (model->chained[i - 1].left == left)
            return true;
    return false;
}

static int read_merge(struct model *model, uint32_t number)
{
    size_t sizes[2];
    if (!read_parts(model, &sizes[0], &sizes[1]))
        return 0;
    const uint8_t *bytes = model->bytes, *behind = bytes + sizes[0];
    uint32_t left = tokens_find(&model->tokens, bytes, sizes[0], bytes, 0);
    uint32_t right = tokens_find(&model->tokens, behind, sizes[1], behind, 0);
    uint32_t joined = tokens_find_by_guess(&model->tokens, model->guess, bytes, sizes[0], behind,
                                           sizes[1]);
    if (left == NO_TOKEN || right == NO_TOKEN || joined == NO_TOKEN ||
        is_known(model, left, joined))
        return 0;
    model->chained[number] = (struct chained){left, model->last_made[joined]};
    model->last_made[joined] = number + 1;
    model->guess = joined + 1;
    uint8_t *flags = (uint8_t *)PyByteArray_AS_STRING(model->flags);
    flags[left] = flags[right] = flags[joined] = IS_TOKEN | IN_MERGE;
    PyObject *pair = pair_of(model->ints[left], model->ints[right]);
    int status = pair && PyList_Append(model->merges, pair) == 0 ? 1 : -1;
    Py_XDECREF(pair);
    return status;
}

static int read_merges(struct model *model)
{
    struct text *text = &model->text;
    if (!model->vocab || model->merges || !take(text, '['))
        return 0;
    model->cuts[2] = text->at;
    size_t most = (size_t)(text->end - text->at) / 5; /* "a b" */
    most = most < MAX_MERGES ? most : MAX_MERGES;
    model->merges = PyList_New(0);
    model->chained = PyMem_New(struct chained, (Py_ssize_t)most + 1);
    if (!model->merges || !model->chained) {
        PyErr_NoMemory();
        return -1;
    }
    skip_space(text);
    for (uint32_t number = 0; text->at < text->end && *text->at != ']'; number++) {
        int status = number < most && (!number || take(text, ',')) ? read_merge(model, number) : 0;
        if (status != 1)
            return status;
        skip_space(text);
    }
    model->cuts[3] = text->at;
    return take(text, ']');
}

/* -- All of it ------------------------------------------------------------------------------- */

/* Read an object of which only one or two keys matter. */
static int read_object(struct model *model, bool is_top)
{
    struct text *text = &model->text;
    bool found = false;
    if (!take(text, '{'))
        return 0;
    do {
        const uint8_t *key;
        size_t size;
        int status;
        if (!read_key(text, &key, &size))
            return 0;
        if (is_top && is_key(key, size, "model")) {
            status = found ? 0 : read_object(model, false);
            found = true;
        } else if (!is_top && is_key(key, size, "vocab")) {
            status = read_vocab(model);
        } else if (!is_top && is_key(key, size, "merges")) {
            status = read_merges(model);
        } else {
            status = skip_value(text);
        }
        if (status != 1)
            return status;
    } while (take(text, ','));
    return take(text, '}');
}

/* The file without its vocabulary and merges. */
static PyObject *join_rest(const struct model *model, PyObject *data)
{
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(data);
    const uint8_t *const *cuts = model->cuts;
    size_t sizes[3] = {(size_t)(cuts[0] - start), (size_t)(cuts[2] - cuts[1]),
                       (size_t)(model->text.end - cuts[3])};
    PyObject *rest = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(sizes[0] + sizes[1] + sizes[2]));
    if (!rest)
        return NULL;
    char *out = PyBytes_AS_STRING(rest);
    memcpy(out, start, sizes[0]);
    memcpy(out + sizes[0], cuts[1], sizes[1]);
    memcpy(out + sizes[0] + sizes[1], cuts[3], sizes[2]);
    return rest;
}

PyDoc_STRVAR(read_model_doc,
             "read_model(data, /)\n--\n\n"
             "Read the vocabulary and the merges of a tokenizer.json of byte-level BPE.\n\n"
             "Returns:\n"
             "    The file with both emptied, which may still be invalid JSON; token -> id, as\n"
             "    bytes; the same for keys that the byte alphabet can't write, as str; the merges,\n"
             "    as pairs of ids; and for each id, 0 if no bytes have it, 1 if some have, and 3 if\n"
             "    they are also in a merge.  None if anything in the file is unusual or wrong.");

static PyObject *read_model(PyObject *Py_UNUSED(module), PyObject *data)
{
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "data must be bytes");
        return NULL;
    }
    struct model model = {0};
    PyObject *rest = NULL, *result = NULL;
    size_t size = (size_t)PyBytes_GET_SIZE(data);
    model.text.at = (const uint8_t *)PyBytes_AS_STRING(data);
    model.text.end = model.text.at + size;
    fill_alphabet(model.byte_of);
    model.bytes = PyMem_Malloc(size + TOKEN_SLACK);
    if (!model.bytes)
        PyErr_NoMemory();
    else if (read_object(&model, true) == 1 && model.merges && (rest = join_rest(&model, data)))
        result = PyTuple_Pack(5, rest, model.vocab, model.others, model.merges, model.flags);
    Py_XDECREF(rest);
    Py_XDECREF(model.vocab);
    Py_XDECREF(model.others);
    Py_XDECREF(model.merges);
    Py_XDECREF(model.flags);
    tokens_release(&model.tokens);
    PyMem_Free(model.bytes);
    PyMem_Free(model.ints);
    PyMem_Free(model.last_made);
    PyMem_Free(model.chained);
    if (result || PyErr_Occurred())
        return result;
    Py_RETURN_NONE;
}

PyMethodDef files_methods[] = {
    {"read_ranks", read_ranks, METH_O, read_ranks_doc},
    {"read_model", read_model, METH_O, read_model_doc},
    {NULL, NULL, 0, NULL},
};
