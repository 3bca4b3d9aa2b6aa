/* How many characters two strings share from their beginnings, or back from their ends. */

#include "binding/shared.h"

#include <string.h>

#include "binding/text.h"

/* Bytes compared in one step: many at first, few near the first difference. */
enum { LARGEST = 1 << 16, SMALLEST = 64 };

/* How many of n characters two strings share, from a place in each on; or, `backward`, before it. */
static Py_ssize_t shared(PyObject *left, PyObject *right, Py_ssize_t a, Py_ssize_t b, Py_ssize_t n,
                         bool backward)
{
    int kind = (int)PyUnicode_KIND(left), other = (int)PyUnicode_KIND(right);
    const char *x = PyUnicode_DATA(left), *y = PyUnicode_DATA(right);
    Py_ssize_t done = 0;
    if (kind == other) {
        for (Py_ssize_t step = LARGEST / kind; step >= SMALLEST / kind; step /= 4)
            while (n - done >= step) { /* within both: done + step is at most n */
                Py_ssize_t at = backward ? -(done + step) : done;
                if (memcmp(x + (a + at) * kind, y + (b + at) * kind, (size_t)(step * kind)) != 0)
                    break;
                done += step;
            }
    }
    while (done < n) {
        Py_ssize_t at = backward ? -(done + 1) : done;
        if (PyUnicode_READ(kind, x, a + at) != PyUnicode_READ(other, y, b + at))
            break;
        done++;
    }
    return done;
}

static PyObject *shared_of(PyObject *args, const char *format, bool backward)
{
    PyObject *left, *right;
    Py_ssize_t most = PY_SSIZE_T_MAX;
    if (!PyArg_ParseTuple(args, format, &left, &right, &most) || check_string(left) < 0 ||
        check_string(right) < 0)
        return NULL;
    Py_ssize_t a = PyUnicode_GET_LENGTH(left), b = PyUnicode_GET_LENGTH(right);
    Py_ssize_t n = a < b ? a : b;
    if (most < n)
        n = most < 0 ? 0 : most;
    return PyLong_FromSsize_t(backward ? shared(left, right, a, b, n, true)
                                       : shared(left, right, 0, 0, n, false));
}

PyDoc_STRVAR(shared_start_doc,
             "shared_start(left, right, most=..., /)\n--\n\n"
             "Return how many characters two strings share from their beginnings, up to `most`.");

static PyObject *module_shared_start(PyObject *Py_UNUSED(module), PyObject *args)
{
    return shared_of(args, "UU|n:shared_start", false);
}

PyDoc_STRVAR(shared_end_doc,
             "shared_end(left, right, most=..., /)\n--\n\n"
             "Return how many characters two strings share back from their ends, up to `most`.");

static PyObject *module_shared_end(PyObject *Py_UNUSED(module), PyObject *args)
{
    return shared_of(args, "UU|n:shared_end", true);
}

PyMethodDef shared_methods[] = {
    {"shared_start", module_shared_start, METH_VARARGS, shared_start_doc},
    {"shared_end", module_shared_end, METH_VARARGS, shared_end_doc},
    {NULL, NULL, 0, NULL},
};
