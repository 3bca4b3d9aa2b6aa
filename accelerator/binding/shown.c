/* The printable form of each id: an array, filled as ids are first asked for. */

#include "binding/shown.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "binding/encoder.h"
#include "binding/ids.h"

enum {
    /* The ints of a list, the places they lead to, and the objects there are all at random
     * addresses, so each is fetched well ahead of the next. */
    INTS_AHEAD = 32,
    PLACES_AHEAD = 20,
    ITEMS_AHEAD = 10,
};

typedef struct {
    PyObject_HEAD
    PyObject *write; /* makes the form of an id */
    Py_ssize_t n_ids;
    /* NULL until first asked for.  An entry never changes again, so any thread may read it. */
    _Atomic(PyObject *) *items;
} Shown;

/* Whether an id has an entry.  NO_TOKEN never has one.
 * NOTE: compare without a sign. On 32 bits NO_TOKEN as a Py_ssize_t is -1. */
static inline bool has_entry(const Shown *self, uint32_t id)
{
    return id < (size_t)self->n_ids;
}

/* The entry of an object, if it is a plain int below n_ids; else NULL. */
static inline PyObject *known(const Shown *self, PyObject *object)
{
    uint32_t id = small_int(object);
    if (!has_entry(self, id))
        return NULL;
    return atomic_load_explicit(&self->items[id], memory_order_acquire);
}

PyDoc_STRVAR(get_doc, "__getitem__(id, /)\n--\n\nReturn the form of an id.");

/* The form of an id.  A new reference, or NULL and an exception. */
static PyObject *shown_get(Shown *self, PyObject *object)
{
    PyObject *item = known(self, object);
    if (item)
        return Py_NewRef(item);
    item = PyObject_CallOneArg(self->write, object);
    uint32_t id = small_int(object);
    if (!item || !has_entry(self, id))
        return item;
    PyObject *none = NULL;
    Py_INCREF(item); /* for the place */
    if (!atomic_compare_exchange_strong(&self->items[id], &none, item))
        Py_DECREF(item); /* another thread, or `write` itself, was first */
    return item;
}

#if defined(__GNUC__)
static inline void fetch_ahead(const Shown *self, PyObject *const *ids, Py_ssize_t i, Py_ssize_t n)
{
    if (i + INTS_AHEAD < n)
        __builtin_prefetch(ids[i + INTS_AHEAD]);
    if (i + PLACES_AHEAD < n) {
        uint32_t id = small_int(ids[i + PLACES_AHEAD]);
        if (has_entry(self, id))
            __builtin_prefetch((const void *)&self->items[id]);
    }
    if (i + ITEMS_AHEAD < n) {
        PyObject *item = known(self, ids[i + ITEMS_AHEAD]);
        if (item)
            __builtin_prefetch(item, 1);
    }
}
#endif

/* The forms of a list of ids that are all known.  NULL without an exception if one is not, or if
 * memory is short.  Making a list may run code that changes the other one: so it is looked at after
 * that. */
static PyObject *all_known(const Shown *self, PyObject *list)
{
    PyObject *found = PyList_New(PyList_GET_SIZE(list));
    PyObject *const *ids = ((PyListObject *)list)->ob_item;
    Py_ssize_t n = PyList_GET_SIZE(list);
    if (!found)
        PyErr_Clear();
    else if (PyList_GET_SIZE(found) != n)
        Py_CLEAR(found);
    for (Py_ssize_t i = 0; found && i < n; i++) {
#if defined(__GNUC__)
        fetch_ahead(self, ids, i, n);
#endif
        PyObject *item = known(self, ids[i]);
        if (!item)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, i, Py_NewRef(item));
    }
    return found;
}

PyDoc_STRVAR(of_doc, "of(ids, /)\n--\n\nReturn the forms of several ids, any iterable, as a list.");

static PyObject *shown_of(Shown *self, PyObject *ids)
{
    PyObject *found = NULL;
    if (PyList_CheckExact(ids))
        LOCKED(ids, found = all_known(self, ids));
    if (found)
        return found;
    /* `write` might change a list. */
    PyObject *items = PyList_CheckExact(ids) ? tuple_of_list(ids) : PySequence_Tuple(ids);
    if (!items)
        return NULL;
    found = PyList_New(0);
    for (Py_ssize_t i = 0; found && i < PyTuple_GET_SIZE(items); i++) {
        PyObject *item = shown_get(self, PyTuple_GET_ITEM(items, i));
        if (!item || PyList_Append(found, item) < 0)
            Py_CLEAR(found);
        Py_XDECREF(item);
    }
    Py_DECREF(items);
    return found;
}

/* -- The object ------------------------------------------------------------------------------ */

PyDoc_STRVAR(shown_doc,
             "Shown(write, n_ids)\n--\n\n"
             "Id -> printable form, made by write(id) when it is first asked for.\n\n"
             "Keeps no entry for ids from n_ids on, or for objects that aren't plain ints.\n\n"
             "Raises:\n"
             "    OverflowError: n_ids is larger than an encoder allows.");

static PyObject *shown_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"write", "n_ids", NULL};
    PyObject *write;
    Py_ssize_t n_ids;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "On:Shown", names, &write, &n_ids))
        return NULL;
    if (n_ids < 0 || n_ids > MAX_IDS) {
        PyErr_Format(PyExc_OverflowError, "n_ids must be 0 to %d, got %zd", MAX_IDS, n_ids);
        return NULL;
    }
    Shown *self = (Shown *)type->tp_alloc(type, 0); /* all zero */
    if (!self)
        return NULL;
    self->write = Py_NewRef(write);
    self->items = PyMem_Calloc((size_t)n_ids, sizeof *self->items);
    if (!self->items) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->n_ids = n_ids;
    return (PyObject *)self;
}

/* The forms are strings, which are in no cycles. */
static int shown_traverse(Shown *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->write);
    return 0;
}

static void shown_dealloc(Shown *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (Py_ssize_t id = 0; id < self->n_ids; id++)
        Py_XDECREF(atomic_load(&self->items[id]));
    PyMem_Free((void *)self->items);
    Py_XDECREF(self->write);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef shown_methods[] = {
    {"of", (PyCFunction)shown_of, METH_O, of_doc},
    {"__getitem__", (PyCFunction)shown_get, METH_O | METH_COEXIST, get_doc}, /* quicker */
    {NULL, NULL, 0, NULL},
};

static PyType_Slot shown_slots[] = {
    {Py_tp_doc, (void *)shown_doc},
    {Py_tp_new, (void *)shown_new},
    {Py_tp_dealloc, (void *)shown_dealloc},
    {Py_tp_traverse, (void *)shown_traverse},
    {Py_tp_methods, shown_methods},
    {Py_mp_subscript, (void *)shown_get},
    {0, NULL},
};

static PyType_Spec shown_spec = {
    .name = "_bpe_tokenizer.native.Shown",
    .basicsize = sizeof(Shown),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = shown_slots,
};

int add_shown(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &shown_spec, NULL);
    if (!type)
        return -1;
    int status = PyModule_AddObjectRef(module, "Shown", type);
    Py_DECREF(type);
    return status;
}
