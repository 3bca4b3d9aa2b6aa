/* Python's side of merges from ranks. */

#include "binding/ranks.h"

#include <stdbool.h>

#include "binding/encoder.h"
#include "binding/text.h"
#include "encode/ranks.h"

enum { AHEAD = 16 }; /* ints fetched ahead of their use */

#define MAX_STEPS ((uint64_t)1 << 30) /* finding a merge takes quadratic time in the length */

static int check_tokens(PyObject *items)
{
    uint64_t steps = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        PyObject *token = PyTuple_GET_ITEM(items, i);
        if (!PyBytes_Check(token)) {
            PyErr_SetString(PyExc_TypeError, "tokens must be bytes");
            return -1;
        }
        uint64_t length = (uint64_t)PyBytes_GET_SIZE(token);
        if (length > MAX_STEPS || (steps += length * length) > MAX_STEPS) {
            PyErr_SetString(PyExc_OverflowError, "tokens too long for this engine");
            return -1;
        }
    }
    if (PyTuple_GET_SIZE(items) >= MAX_IDS) {
        PyErr_Format(PyExc_OverflowError, "expected fewer than %d tokens", MAX_IDS);
        return -1;
    }
    return 0;
}

static int add_tokens(struct ranks *ranks, PyObject *items)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        PyObject *token = PyTuple_GET_ITEM(items, i);
        if (tokens_add(&ranks->tokens, (uint32_t)i, (const uint8_t *)PyBytes_AS_STRING(token),
                       (size_t)PyBytes_GET_SIZE(token)) < 0)
            return -1;
    }
    return 0;
}

/* One int for each place in the list; a merge takes references. */
static PyObject *make_numbers(Py_ssize_t n)
{
    PyObject *numbers = PyTuple_New(n);
    for (Py_ssize_t i = 0; numbers && i < n; i++) {
        PyObject *number = PyLong_FromSsize_t(i);
        if (number)
            PyTuple_SET_ITEM(numbers, i, number);
        else
            Py_CLEAR(numbers);
    }
    return numbers;
}

/* The names that merges use for tokens, instead of numbers.  Only types that pair_of allows. */
static PyObject *check_names(PyObject *names, Py_ssize_t n)
{
    PyObject *items = items_of_list(names, "names");
    if (!items)
        return NULL;
    bool plain = PyTuple_GET_SIZE(items) == n;
    for (Py_ssize_t i = 0; plain && i < n; i++) {
        PyObject *name = PyTuple_GET_ITEM(items, i);
        plain = PyLong_CheckExact(name) || PyBytes_CheckExact(name);
    }
    if (plain)
        return items;
    PyErr_SetString(PyExc_TypeError, "names must be ints or bytes, one for each token");
    Py_DECREF(items);
    return NULL;
}

PyObject *pair_of(PyObject *left, PyObject *right)
{
    PyObject *pair = PyTuple_New(2);
    if (!pair)
        return NULL;
    Py_INCREF(left);
    Py_INCREF(right);
    PyTuple_SET_ITEM(pair, 0, left);
    PyTuple_SET_ITEM(pair, 1, right);
    PyObject_GC_UnTrack(pair);
    return pair;
}

/* The two tokens that a token is made of; both NO_TOKEN if there are none. */
struct made_of {
    uint32_t left, right;
};

static int find_merges(struct ranks *ranks, struct made_of *merges)
{
    for (uint32_t i = 0; i < ranks->tokens.n_ids; i++) {
        int found = find_merge(ranks, i, &merges[i].left, &merges[i].right);
        if (found < 0)
            return -1;
        if (!found)
            merges[i] = (struct made_of){NO_TOKEN, NO_TOKEN};
    }
    return 0;
}

/* A list of the merges, with `names` for the tokens; None for a token that has none, or nothing. */
static PyObject *list_merges(const struct made_of *merges, PyObject *names, bool with_none)
{
    Py_ssize_t n = PyTuple_GET_SIZE(names), length = 0, next = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        length += with_none || merges[i].left != NO_TOKEN;
    PyObject *const *name = &PyTuple_GET_ITEM(names, 0), *list = PyList_New(length);
    for (Py_ssize_t i = 0; list && i < n; i++) {
#if defined(__GNUC__)
        if (i + AHEAD < n && merges[i + AHEAD].left != NO_TOKEN) {
            __builtin_prefetch(name[merges[i + AHEAD].left], 1);
            __builtin_prefetch(name[merges[i + AHEAD].right], 1);
        }
#endif
        PyObject *merge = Py_None;
        if (merges[i].left != NO_TOKEN)
            merge = pair_of(name[merges[i].left], name[merges[i].right]);
        else if (with_none)
            Py_INCREF(merge);
        else
            continue;
        if (merge)
            PyList_SET_ITEM(list, next++, merge);
        else
            Py_CLEAR(list);
    }
    return list;
}

PyDoc_STRVAR(merges_from_ranks_doc,
             "merges_from_ranks(tokens, names=None, /)\n--\n\n"
             "Find the merges that encode as the ranks of tokens do.\n\n"
             "Args:\n"
             "    tokens: list of bytes, the lowest rank first, each once.  Merging starts from\n"
             "        those of one byte, which may be anywhere in the list.\n"
             "    names: a name for each token in the merges, a list of int or bytes.\n\n"
             "Returns:\n"
             "    For each token, the places in the list of the two tokens it is made of: those\n"
             "    that remain before the last step when it is encoded by itself.  None for a\n"
             "    token of one byte, or one that can't be made; with names, these are left out.\n\n"
             "Raises:\n"
             "    OverflowError: too many tokens, or too long ones, for this engine.");

/* The same for tokens that were checked; for NULL as names, numbers. */
static PyObject *merges_of(PyObject *items, PyObject *names, uint64_t seed)
{
    PyObject *numbers = NULL, *list = NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    struct ranks ranks = {0};
    struct made_of *merges = PyMem_New(struct made_of, n);
    if (!merges || ranks_open(&ranks, (uint32_t)n, seed) < 0 || add_tokens(&ranks, items) < 0 ||
        ranks_read(&ranks) < 0 || find_merges(&ranks, merges) < 0)
        PyErr_NoMemory();
    else if (names)
        list = list_merges(merges, names, false);
    else if ((numbers = make_numbers(n)) != NULL)
        list = list_merges(merges, numbers, true);
    ranks_release(&ranks);
    PyMem_Free(merges);
    Py_XDECREF(numbers);
    return list;
}

static PyObject *merges_from_ranks(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *tokens, *given = Py_None, *names = NULL, *merges = NULL;
    if (!PyArg_ParseTuple(args, "O|O:merges_from_ranks", &tokens, &given))
        return NULL;
    PyObject *items = items_of_list(tokens, "tokens");
    uint64_t seed;
    if (items && check_tokens(items) == 0 && get_seed(&seed) == 0 &&
        (given == Py_None || (names = check_names(given, PyTuple_GET_SIZE(items)))))
        merges = merges_of(items, names, seed);
    Py_XDECREF(names);
    Py_XDECREF(items);
    return merges;
}

PyMethodDef ranks_methods[] = {
    {"merges_from_ranks", merges_from_ranks, METH_VARARGS, merges_from_ranks_doc},
    {NULL, NULL, 0, NULL},
};
