/* Python's side of whole words: the type `WordFinder`.
 *
 * It cuts text into pieces, and pieces into words, and replaces each word by its number.  A finder
 * never changes after it is made, so threads may share one. */

#include "binding/words.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/processor.h"
#include "binding/encoder.h"
#include "binding/scan.h"
#include "binding/text.h"
#include "train/byte_map.h"

enum { ENDS = 1024, FIRST_NUMBERS = 1024 };

typedef struct {
    PyObject_HEAD
    PyObject *patterns[2]; /* the cutters were made from them, and may point into them */
    struct cutter pieces, words;
    struct byte_map numbers; /* of words, plus 1 */
    uint32_t between;
} WordFinder;

static void word_finder_dealloc(WordFinder *self)
{
    PyTypeObject *type = Py_TYPE(self);
    byte_map_close(&self->numbers);
    Py_XDECREF(self->patterns[0]);
    Py_XDECREF(self->patterns[1]);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* -- Making one ------------------------------------------------------------------------------ */

/* Add a word.  Returns 0, or -1 and an exception. */
static int add_word(struct byte_map *numbers, PyObject *word, PyObject *number)
{
    if (!PyBytes_Check(word) || !PyBytes_GET_SIZE(word) || !PyLong_Check(number)) {
        PyErr_SetString(PyExc_TypeError, "numbers must map non-empty bytes to ints");
        return -1;
    }
    unsigned long value = PyLong_AsUnsignedLong(number);
    if (value == (unsigned long)-1 && PyErr_Occurred())
        return -1;
    if (value > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "numbers must fit in 32 bits");
        return -1;
    }
    uint64_t *place = byte_map_at(numbers, (const uint8_t *)PyBytes_AS_STRING(word),
                                  (size_t)PyBytes_GET_SIZE(word));
    if (!place) {
        PyErr_NoMemory();
        return -1;
    }
    *place = (uint64_t)value + 1;
    return 0;
}

static int add_words(WordFinder *self, PyObject *numbers)
{
    uint64_t seed;
    if (get_seed(&seed) < 0)
        return -1;
    byte_map_open(&self->numbers, seed);
    PyObject *items = PyDict_Items(numbers); /* the dict may change; nobody else has the list */
    int status = items ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < PyList_GET_SIZE(items); i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        status = add_word(&self->numbers, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1));
    }
    Py_XDECREF(items);
    return status;
}

PyDoc_STRVAR(word_finder_doc,
             "WordFinder(numbers, pieces, words, between, portable=False)\n--\n\n"
             "Turns texts into numbers of whole words.\n\n"
             "Args:\n"
             "    numbers: word -> number, a dict of bytes.\n"
             "    pieces, words: the patterns that cut text into pieces, and each piece, by\n"
             "        itself, into words: names of built-in split patterns, or automatons.\n"
             "    between: replaces a word without a number, and follows each piece.\n"
             "    portable: don't use this processor's special instructions.");

static PyObject *word_finder_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"numbers", "pieces", "words", "between", "portable", NULL};
    PyObject *numbers, *pieces, *words;
    unsigned int between;
    int portable = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOI|p:WordFinder", names, &PyDict_Type,
                                     &numbers, &pieces, &words, &between, &portable))
        return NULL;
    WordFinder *self = (WordFinder *)type->tp_alloc(type, 0); /* all zero */
    if (!self)
        return NULL;
    self->patterns[0] = Py_NewRef(pieces);
    self->patterns[1] = Py_NewRef(words);
    self->between = between;
    int status = cutter_of(pieces, portable, &self->pieces);
    if (status == 0)
        status = cutter_of(words, portable, &self->words);
    if (status == 0 && !(can_cut(self->pieces) && can_cut(self->words))) {
        PyErr_SetString(PyExc_TypeError, "both patterns need a scanner");
        status = -1;
    }
    if (status < 0 || add_words(self, numbers) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* -- Using it -------------------------------------------------------------------------------- */

/* The numbers found so far. */
struct found {
    uint32_t *items;
    size_t n, room;
};

static int add_number(struct found *found, uint32_t number)
{
    if (found->n == found->room) {
        size_t room = found->room ? 2 * found->room : FIRST_NUMBERS;
        uint32_t *items = realloc(found->items, room * sizeof *items);
        if (!items)
            return -1;
        found->items = items;
        found->room = room;
    }
    found->items[found->n++] = number;
    return 0;
}

static int find_in_piece(const WordFinder *self, const uint8_t *piece, size_t size,
                         struct found *found)
{
    size_t ends[ENDS], position = 0, start = 0, n;
    while ((n = cut(self->words, piece, size, &position, ends, ENDS)) != 0)
        for (size_t i = 0; i < n; start = ends[i++]) {
            uint64_t number = byte_map_get(&self->numbers, piece + start, ends[i] - start);
            if (add_number(found, number ? (uint32_t)(number - 1) : self->between) < 0)
                return -1;
        }
    return add_number(found, self->between);
}

/* How many bytes the first character of a text has. */
static size_t first_character(const uint8_t *text)
{
    return text[0] < 0x80 ? 1 : text[0] < 0xE0 ? 2 : text[0] < 0xF0 ? 3 : 4;
}

static int find_in_text(const WordFinder *self, const uint8_t *text, size_t size,
                        struct found *found)
{
    size_t ends[ENDS], position = 0, start = 0, n;
    while ((n = cut(self->pieces, text, size, &position, ends, ENDS)) != 0)
        for (size_t i = 0; i < n; start = ends[i++])
            if (ends[i] - start > first_character(text + start) &&
                find_in_piece(self, text + start, ends[i] - start, found) < 0)
                return -1;
    return 0;
}

/* The same for a string.  Returns 0, or -1 and an exception. */
static int find_in_string(const WordFinder *self, PyObject *string, struct found *found)
{
    if (check_string(string) < 0)
        return -1;
    size_t size = (size_t)PyUnicode_GET_LENGTH(string), kind = PyUnicode_KIND(string);
    const uint8_t *text = PyUnicode_DATA(string);
    uint8_t *copy = NULL;
    if (!PyUnicode_IS_ASCII(string)) {
        if (!(copy = PyMem_Malloc(size * (kind == 4 ? 4 : kind + 1) + 4))) {
            PyErr_NoMemory();
            return -1;
        }
        const uint8_t *end = write_utf8(string, copy, has_avx2());
        if (!end) {
            PyMem_Free(copy);
            raise_surrogate(string);
            return -1;
        }
        text = copy;
        size = (size_t)(end - copy);
    }
    int status = find_in_text(self, text, size, found);
    PyMem_Free(copy);
    if (status < 0)
        PyErr_NoMemory();
    return status;
}

PyDoc_STRVAR(find_doc,
             "find(texts, /)\n--\n\n"
             "Return the numbers of the words in texts, a list of str, as 32-bit numbers in bytes.\n"
             "Pieces of one character are left out.");

static PyObject *word_finder_find(WordFinder *self, PyObject *list)
{
    struct found found = {0};
    if (!PyList_Check(list)) {
        PyErr_Format(PyExc_TypeError, "texts must be a list, got %.100s", Py_TYPE(list)->tp_name);
        return NULL;
    }
    PyObject *texts = tuple_of_list(list); /* the list may change; the tuple does not */
    int status = texts ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(texts); i++)
        status = find_in_string(self, PyTuple_GET_ITEM(texts, i), &found);
    Py_XDECREF(texts);
    PyObject *bytes = NULL;
    if (status == 0)
        bytes = PyBytes_FromStringAndSize((const char *)found.items,
                                          (Py_ssize_t)(found.n * sizeof *found.items));
    free(found.items);
    return bytes;
}

static PyMethodDef word_finder_methods[] = {
    {"find", (PyCFunction)word_finder_find, METH_O, find_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot word_finder_slots[] = {
    {Py_tp_doc, (void *)word_finder_doc},
    {Py_tp_new, (void *)word_finder_make},
    {Py_tp_dealloc, (void *)word_finder_dealloc},
    {Py_tp_methods, word_finder_methods},
    {0, NULL},
};

PyType_Spec word_finder_spec = {
    .name = "_bpe_tokenizer.native.WordFinder",
    .basicsize = sizeof(WordFinder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = word_finder_slots,
};
