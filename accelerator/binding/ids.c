/* Reading ids that Python passes. */

#include "binding/ids.h"

#include "binding/encoder.h"

enum { AHEAD = 32 }; /* ids that are looked at ahead of their use */

/* Read ids, and the length of their tokens together; runs no Python code.  Returns how many were
 * read: fewer than n if one isn't a plain int, or has no token. */
static Py_ssize_t read_plain(const struct tokens *tokens, PyObject *const *items, Py_ssize_t n,
                             uint32_t *ids, size_t *length)
{
    size_t total = 0;
    Py_ssize_t i = 0;
    for (; i < n; i++) {
#if defined(__GNUC__)
        if (i + AHEAD < n)
            __builtin_prefetch(items[i + AHEAD]);
#endif
        uint32_t id = small_int(items[i]);
        if (id >= tokens->n_ids)
            break;
        if (tokens->lengths[id] == NOT_IN_SLOT)
            break;
        ids[i] = id;
        total += token_length(tokens, id);
    }
    *length = total;
    return i;
}

/* Read ids from any sequence of integers.  Returns 0, or -1 and an exception. */
static int read_any(const struct tokens *tokens, PyObject *items, uint32_t *ids, size_t *length)
{
    size_t total = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        PyObject *number = PyNumber_Index(PyTuple_GET_ITEM(items, i));
        if (!number)
            return -1;
        int overflow;
        long id = PyLong_AsLongAndOverflow(number, &overflow);
        Py_DECREF(number);
        if (id < 0 || id >= (long)tokens->n_ids || !tokens_have(tokens, (uint32_t)id)) {
            PyErr_SetObject(PyExc_KeyError, PyTuple_GET_ITEM(items, i));
            return -1;
        }
        ids[i] = (uint32_t)id;
        total += tokens->by_id[id].length;
    }
    *length = total;
    return 0;
}

void release_ids(struct ids *ids)
{
    if (ids->ids != ids->on_stack)
        PyMem_Free(ids->ids);
}

static int make_room(struct ids *ids, Py_ssize_t n)
{
    ids->n = n;
    ids->ids = n <= IDS_ON_STACK ? ids->on_stack : PyMem_New(uint32_t, n);
    if (ids->ids)
        return 0;
    PyErr_NoMemory();
    return -1;
}

/* Read the ids of a list, if all of them are plain.  Returns 1 if so, 0 if not, or -1 and an
 * exception. */
static int read_list(const struct tokens *tokens, PyObject *list, struct ids *ids)
{
    if (make_room(ids, PyList_GET_SIZE(list)) < 0)
        return -1;
    PyObject *const *items = ((PyListObject *)list)->ob_item;
    return read_plain(tokens, items, ids->n, ids->ids, &ids->length) == ids->n;
}

/* -- Buffers --------------------------------------------------------------------------------- */

/* Read ids of one type.  Each is read once: another thread may be changing it.  A negative number
 * becomes one that is too large.  Returns how many were read: fewer than n if one has no token. */
#define READ_NUMBERS(NAME, TYPE)                                                                   \
    static Py_ssize_t NAME(const struct tokens *tokens, const void *items, struct ids *ids)        \
    {                                                                                              \
        const volatile TYPE *numbers = items;                                                      \
        Py_ssize_t i = 0;                                                                          \
        for (ids->length = 0; i < ids->n; i++) {                                                   \
            uint64_t number = (uint64_t)numbers[i];                                                \
            if (number >= tokens->n_ids || tokens->lengths[number] == NOT_IN_SLOT)                 \
                break;                                                                             \
            ids->ids[i] = (uint32_t)number;                                                        \
            ids->length += token_length(tokens, (uint32_t)number);                                 \
        }                                                                                          \
        return i;                                                                                  \
    }
READ_NUMBERS(read_short, short)
READ_NUMBERS(read_unsigned_short, unsigned short)
READ_NUMBERS(read_int, int)
READ_NUMBERS(read_unsigned, unsigned)
READ_NUMBERS(read_long, long)
READ_NUMBERS(read_unsigned_long, unsigned long)
READ_NUMBERS(read_long_long, long long)
READ_NUMBERS(read_unsigned_long_long, unsigned long long)

struct number_type {
    char format; /* as in the module `struct` */
    Py_ssize_t (*read)(const struct tokens *tokens, const void *items, struct ids *ids);
};

static const struct number_type number_types[] = {
    {'h', read_short}, {'H', read_unsigned_short}, {'q', read_long_long},
    {'i', read_int},   {'I', read_unsigned},       {'Q', read_unsigned_long_long},
    {'l', read_long},  {'L', read_unsigned_long},
};

static const struct number_type *type_of(const Py_buffer *view)
{
    for (size_t i = 0; view->format && i < sizeof number_types / sizeof *number_types; i++)
        if (view->format[0] == number_types[i].format && !view->format[1])
            return &number_types[i];
    return NULL;
}

static int read_view(const struct tokens *tokens, const Py_buffer *view, struct ids *ids)
{
    const struct number_type *type = view->ndim == 1 ? type_of(view) : NULL;
    if (!type || !PyBuffer_IsContiguous(view, 'C')) {
        PyErr_SetString(PyExc_TypeError,
                        "expected a contiguous, one-dimensional buffer of integers");
        return -1;
    }
    if (make_room(ids, view->len / view->itemsize) < 0)
        return -1;
    Py_ssize_t end = type->read(tokens, view->buf, ids);
    if (end == ids->n)
        return 0;
    release_ids(ids);
    PyErr_Format(PyExc_KeyError, "the id at %zd has no token", end);
    return -1;
}

int read_ids_of_row(const struct tokens *tokens, const Py_buffer *view, Py_ssize_t row,
                    struct ids *ids)
{
    Py_buffer part = *view;
    if (PyBuffer_IsContiguous(view, 'C')) {
        part.ndim = 1;
        part.len = view->shape[1] * view->itemsize;
        part.buf = (char *)view->buf + row * part.len;
        part.shape = part.strides = part.suboffsets = NULL;
    }
    return read_view(tokens, &part, ids);
}

int get_buffer(PyObject *object, Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_FULL_RO) == 0)
        return 0;
    /* NumPy raises a ValueError, for dates for example. */
    if (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_ValueError))
        PyErr_SetString(PyExc_TypeError, "expected a buffer of integers");
    return -1;
}

static int read_buffer(const struct tokens *tokens, PyObject *object, struct ids *ids)
{
    Py_buffer view;
    if (get_buffer(object, &view) < 0)
        return -1;
    int status = read_view(tokens, &view, ids);
    PyBuffer_Release(&view);
    return status;
}

int read_ids(const struct tokens *tokens, PyObject *object, struct ids *ids)
{
    if (PyList_CheckExact(object)) {
        int status;
        LOCKED(object, status = read_list(tokens, object, ids));
        if (status < 0)
            return -1;
        if (status)
            return 0;
        release_ids(ids);
    } else if (PyObject_CheckBuffer(object)) {
        return read_buffer(tokens, object, ids);
    } else if (!PyList_Check(object) && !PyTuple_Check(object)) {
        PyErr_Format(PyExc_TypeError, "ids must be a list, a tuple or a buffer, got %.100s",
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    PyObject *items = PyList_CheckExact(object) ? tuple_of_list(object) : PySequence_Tuple(object);
    if (!items)
        return -1;
    int status = make_room(ids, PyTuple_GET_SIZE(items));
    if (status == 0 && (status = read_any(tokens, items, ids->ids, &ids->length)) < 0)
        release_ids(ids);
    Py_DECREF(items);
    return status;
}
