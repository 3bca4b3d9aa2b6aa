/* Python's side of merges from ranks. */

#include "python_ranks.h"

#include "python_encoder.h"
#include "ranks.h"

#define MAX_STEPS ((uint64_t)1 << 30) /* finding a merge takes the square of the length */

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
            PyErr_SetString(PyExc_OverflowError, "tokens are too long for this engine");
            return -1;
        }
    }
    if (PyTuple_GET_SIZE(items) >= MAX_IDS) {
        PyErr_Format(PyExc_OverflowError, "%d tokens or more", MAX_IDS);
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

static PyObject *list_merges(struct ranks *ranks, PyObject *numbers)
{
    PyObject *list = PyList_New(PyTuple_GET_SIZE(numbers));
    for (Py_ssize_t i = 0; list && i < PyTuple_GET_SIZE(numbers); i++) {
        uint32_t left, right;
        PyObject *merge = Py_None;
        if (find_merge(ranks, (uint32_t)i, &left, &right))
            merge = PyTuple_Pack(2, PyTuple_GET_ITEM(numbers, left),
                                 PyTuple_GET_ITEM(numbers, right));
        else
            Py_INCREF(merge);
        if (merge)
            PyList_SET_ITEM(list, i, merge);
        else
            Py_CLEAR(list);
    }
    return list;
}

PyDoc_STRVAR(merges_from_ranks_doc,
             "merges_from_ranks(tokens, /)\n--\n\n"
             "Find the merges that encode as the ranks of tokens do.\n\n"
             "Args:\n"
             "    tokens: list of bytes, the lowest rank first, none of them twice.  Those of one\n"
             "        byte are what text begins as; they may stand anywhere.\n\n"
             "Returns:\n"
             "    For each token the places in the list of the two that it is made of: what is\n"
             "    left of it, encoded on its own, before the last step.  None for a token of one\n"
             "    byte, and for one that cannot be made.\n\n"
             "Raises:\n"
             "    OverflowError: the tokens are too many, or too long, for this engine.");

static PyObject *merges_from_ranks(PyObject *Py_UNUSED(module), PyObject *tokens)
{
    PyObject *items = items_of_list(tokens, "tokens"), *numbers = NULL, *merges = NULL;
    if (!items)
        return NULL;
    struct ranks ranks = {0};
    if (check_tokens(items) == 0) {
        if (ranks_open(&ranks, (uint32_t)PyTuple_GET_SIZE(items)) < 0 ||
            add_tokens(&ranks, items) < 0 || ranks_index(&ranks) < 0)
            PyErr_NoMemory();
        else if ((numbers = make_numbers(PyTuple_GET_SIZE(items))) != NULL)
            merges = list_merges(&ranks, numbers);
    }
    ranks_release(&ranks);
    Py_XDECREF(numbers);
    Py_DECREF(items);
    return merges;
}

PyMethodDef ranks_methods[] = {
    {"merges_from_ranks", merges_from_ranks, METH_O, merges_from_ranks_doc},
    {NULL, NULL, 0, NULL},
};
