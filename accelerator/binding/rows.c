/* Lists of ids as the rows of a tensor. */

#include "binding/rows.h"

#include "binding/encoder.h"
#include "binding/ids.h"

enum { AHEAD = 32 }; /* ints fetched ahead of their use */

/* The tensors to fill: `ids`, and `mask` if it is not NULL, with rows of the same length. */
struct tensor {
    int64_t *ids, *mask;
    Py_ssize_t length;
    int64_t pad_id;
    int left;
};

static void set_all(int64_t *numbers, Py_ssize_t n, int64_t value)
{
    for (Py_ssize_t i = 0; i < n; i++)
        numbers[i] = value;
}

/* Read the ints of a list.  Runs no Python code, so nobody changes the list meanwhile. */
static int read_row(PyObject *row, int64_t *out)
{
    PyObject *const *items = ((PyListObject *)row)->ob_item;
    Py_ssize_t n = PyList_GET_SIZE(row);
    for (Py_ssize_t i = 0; i < n; i++) {
#if defined(__GNUC__)
        if (i + AHEAD < n)
            __builtin_prefetch(items[i + AHEAD]);
#endif
        uint32_t id = small_int(items[i]);
        if (id != NO_TOKEN) {
            out[i] = id;
            continue;
        }
        if (!PyLong_Check(items[i])) {
            PyErr_Format(PyExc_TypeError, "an id must be an int, got %.100s",
                         Py_TYPE(items[i])->tp_name);
            return -1;
        }
        out[i] = PyLong_AsLongLong(items[i]);
        if (out[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static int fill_row(const struct tensor *tensor, Py_ssize_t at, PyObject *row)
{
    Py_ssize_t n = PyList_GET_SIZE(row), n_pads = tensor->length - n;
    if (n_pads < 0) {
        PyErr_Format(PyExc_ValueError, "row %zd has %zd ids, expected at most %zd", at, n,
                     tensor->length);
        return -1;
    }
    Py_ssize_t start = at * tensor->length, first = start + (tensor->left ? n_pads : 0);
    Py_ssize_t pads = tensor->left ? start : start + n;
    set_all(tensor->ids + pads, n_pads, tensor->pad_id);
    if (tensor->mask) {
        set_all(tensor->mask + pads, n_pads, 0);
        set_all(tensor->mask + first, n, 1);
    }
    return read_row(row, tensor->ids + first);
}

static int fill_all(const struct tensor *tensor, PyObject *rows)
{
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(rows); at++) {
        PyObject *row = PyTuple_GET_ITEM(rows, at);
        if (!PyList_Check(row)) {
            PyErr_Format(PyExc_TypeError, "a row must be a list, got %.100s",
                         Py_TYPE(row)->tp_name);
            return -1;
        }
        int status;
        LOCKED(row, status = fill_row(tensor, at, row));
        if (status < 0)
            return -1;
    }
    return 0;
}

/* Get the memory of a tensor of n rows, which may be written.  Returns 0, or -1 and an exception;
 * release it after 0. */
static int get_memory(PyObject *object, Py_ssize_t n, Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_ND | PyBUF_FORMAT | PyBUF_WRITABLE) < 0)
        return -1;
    const char *format = view->format ? view->format : "B";
    bool is_integer = (format[0] == 'l' || format[0] == 'q') && !format[1];
    if (is_integer && view->itemsize == sizeof(int64_t) && view->ndim == 2 && view->shape[0] == n)
        return 0;
    PyErr_Format(PyExc_TypeError, "expected a two-dimensional buffer of int64 with %zd rows", n);
    PyBuffer_Release(view);
    return -1;
}

static int fill_views(struct tensor *tensor, PyObject *rows, const Py_buffer *ids,
                      const Py_buffer *mask)
{
    if (mask && mask->shape[1] != ids->shape[1]) {
        PyErr_SetString(PyExc_ValueError, "ids and mask must have the same shape");
        return -1;
    }
    tensor->ids = ids->buf;
    tensor->mask = mask ? mask->buf : NULL;
    tensor->length = ids->shape[1];
    return fill_all(tensor, rows);
}

PyDoc_STRVAR(fill_rows_doc,
             "fill_rows(rows, ids, mask, pad_id, left, /)\n--\n\n"
             "Write lists of ids into a tensor, one list per row, and pad the rows.\n\n"
             "Args:\n"
             "    rows: list of n lists of ints, none of them longer than a row of the tensor.\n"
             "    ids: a contiguous, writable buffer of int64, n times a length.\n"
             "    mask: the same, for 1 at ids and 0 at padding; or None.\n"
             "    pad_id: fills the rest of `ids`.\n"
             "    left: whether padding comes before the ids.\n\n"
             "Raises:\n"
             "    ValueError: a row has too many ids.\n"
             "    OverflowError: an id takes more than 64 bits.");

static PyObject *fill_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *rows, *ids_object, *mask_object;
    struct tensor tensor = {0};
    long long pad_id;
    if (!PyArg_ParseTuple(args, "OOOLp", &rows, &ids_object, &mask_object, &pad_id, &tensor.left))
        return NULL;
    tensor.pad_id = pad_id;
    PyObject *items = items_of_list(rows, "rows");
    if (!items)
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    Py_buffer ids, mask;
    int status = -1;
    if (get_memory(ids_object, n, &ids) == 0) {
        if (mask_object == Py_None) {
            status = fill_views(&tensor, items, &ids, NULL);
        } else if (get_memory(mask_object, n, &mask) == 0) {
            status = fill_views(&tensor, items, &ids, &mask);
            PyBuffer_Release(&mask);
        }
        PyBuffer_Release(&ids);
    }
    Py_DECREF(items);
    if (status < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef rows_methods[] = {
    {"fill_rows", fill_rows, METH_VARARGS, fill_rows_doc},
    {NULL, NULL, 0, NULL},
};
