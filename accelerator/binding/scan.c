/* Python's side of the scanners: choosing one, functions to look at what they do, NFC. */

#include "binding/scan.h"

#include "binding/text.h"
#include "encode/encode.h"
#include "scan/unicode_tables.h"

/* -- Patterns -------------------------------------------------------------------------------- */

static const char *const pattern_names[] = {
#define AS_NAME(id, name, ...) name,
    SPLIT_PATTERNS(AS_NAME)
#undef AS_NAME
};

/* The scanners that work by blocks, or NULL if there are none for this processor. */
static scanner *const *block_scanners(void)
{
#if defined(BPE_WITH_AVX2)
    return has_avx2() ? avx2_scanners : NULL;
#elif defined(BPE_WITH_NEON)
    return neon_scanners;
#else
    return NULL;
#endif
}

/* The scanner of a pattern, or NULL and a ValueError. */
scanner *scanner_named(const char *name, bool portable)
{
    scanner *const *by_blocks = portable ? NULL : block_scanners();
    for (int pattern = 0; pattern < PATTERN_COUNT; pattern++)
        if (strcmp(name, pattern_names[pattern]) == 0)
            return (by_blocks ? by_blocks : scalar_scanners)[pattern];
    PyErr_Format(PyExc_ValueError, "no scanner for the split pattern '%s'", name);
    return NULL;
}

int add_patterns(PyObject *module)
{
    PyObject *names = PyTuple_New(PATTERN_COUNT);
    if (!names)
        return -1;
    for (int pattern = 0; pattern < PATTERN_COUNT; pattern++) {
        PyObject *name = PyUnicode_FromString(pattern_names[pattern]);
        if (!name) {
            Py_DECREF(names);
            return -1;
        }
        PyTuple_SET_ITEM(names, pattern, name);
    }
    if (PyModule_AddObject(module, "PATTERNS", names) < 0) {
        Py_DECREF(names);
        return -1;
    }
    return 0;
}

/* -- To look at ------------------------------------------------------------------------------ */

PyDoc_STRVAR(split_doc,
             "split(pattern, text, portable=False)\n--\n\n"
             "Cut a text as a built-in split pattern does; return the UTF-8 of the pre-tokens.");

static PyObject *module_split(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"pattern", "text", "portable", NULL};
    const char *pattern;
    PyObject *string;
    int portable = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sU|p:split", names, &pattern, &string,
                                     &portable))
        return NULL;
    scanner *scan = scanner_named(pattern, portable);
    PyObject *utf8 = scan ? PyUnicode_AsUTF8String(string) : NULL;
    PyObject *list = utf8 ? PyList_New(0) : NULL;
    if (!list) {
        Py_XDECREF(utf8);
        return NULL;
    }
    const char *text = PyBytes_AS_STRING(utf8);
    size_t ends[CHUNK_ROOM], count, position = 0, start = 0;
    while ((count = scan((const uint8_t *)text, (size_t)PyBytes_GET_SIZE(utf8), &position, ends,
                         CHUNK_ROOM)) != 0)
        for (size_t i = 0; i < count; start = ends[i++]) {
            PyObject *piece =
                PyBytes_FromStringAndSize(text + start, (Py_ssize_t)(ends[i] - start));
            int status = piece ? PyList_Append(list, piece) : -1;
            Py_XDECREF(piece);
            if (status < 0) {
                Py_DECREF(list);
                Py_DECREF(utf8);
                return NULL;
            }
        }
    Py_DECREF(utf8);
    return list;
}

PyDoc_STRVAR(classes_doc,
             "character_classes()\n--\n\nReturn the class of every code point, a byte each.");

static PyObject *module_classes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, 0x110000);
    if (!bytes)
        return NULL;
    char *out = PyBytes_AS_STRING(bytes);
    for (uint32_t c = 0; c < 0x110000; c++)
        out[c] = (char)(c < 0x80 ? ascii_classes[c] : class_of(c));
    return bytes;
}

PyDoc_STRVAR(surely_nfc_doc,
             "surely_nfc(text, /)\n--\n\n"
             "Tell whether NFC surely leaves a text as it is, in every version of Unicode.");

static PyObject *module_surely_nfc(PyObject *Py_UNUSED(module), PyObject *text)
{
    return check_string(text) < 0 ? NULL : PyBool_FromLong(is_surely_nfc(text));
}

PyMethodDef scan_methods[] = {
    {"split", (PyCFunction)(void (*)(void))module_split, METH_VARARGS | METH_KEYWORDS, split_doc},
    {"surely_nfc", module_surely_nfc, METH_O, surely_nfc_doc},
    {"character_classes", module_classes, METH_NOARGS, classes_doc},
    {NULL, NULL, 0, NULL},
};
