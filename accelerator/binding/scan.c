/* Python's side of the scanners: choosing one, functions for inspecting them, NFC. */

#include "binding/scan.h"

#include "binding/text.h"
#include "encode/encode.h"
#include "scan/automaton.h"
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
static scanner *scanner_named(const char *name, bool portable)
{
    scanner *const *by_blocks = portable ? NULL : block_scanners();
    for (int pattern = 0; pattern < PATTERN_COUNT; pattern++)
        if (strcmp(name, pattern_names[pattern]) == 0)
            return (by_blocks ? by_blocks : scalar_scanners)[pattern];
    PyErr_Format(PyExc_ValueError, "no scanner for the split pattern '%s'", name);
    return NULL;
}

/* Behind the name of a pattern that cuts numbers by threes, and takes nothing into them. */
static const char from_right[] = ", digits from the right";

/* Choose the scanner of a pattern; -1 and a ValueError if there is none. */
static int choose_scanner(const char *name, bool portable, struct cutter *cutter)
{
    size_t length = strlen(name), suffix = sizeof from_right - 1;
    char plain[16];
    if (length > suffix && length - suffix < sizeof plain &&
        strcmp(name + length - suffix, from_right) == 0) {
        memcpy(plain, name, length - suffix);
        plain[length - suffix] = '\0';
        if (strcmp(plain, "cl100k") == 0 || strcmp(plain, "o200k") == 0 ||
            strcmp(plain, "llama3") == 0) {
            cutter->from_right = true;
            name = plain;
        }
    }
    cutter->scan = scanner_named(name, portable);
    cutter->cuts_safely = cutter->scan && strcmp(name, pattern_names[PATTERN_spaces]) != 0;
    return cutter->scan ? 0 : -1;
}

static const char automaton_name[] = "_bpe_tokenizer.automaton";

int cutter_of(PyObject *pattern, bool portable, struct cutter *cutter)
{
    *cutter = (struct cutter){0};
    if (pattern == Py_None)
        return 0;
    if (PyCapsule_IsValid(pattern, automaton_name)) {
        cutter->automaton = PyCapsule_GetPointer(pattern, automaton_name);
        return 0;
    }
    if (!PyUnicode_Check(pattern)) {
        PyErr_Format(PyExc_TypeError, "pattern must be a str, an automaton or None, got %.100s",
                     Py_TYPE(pattern)->tp_name);
        return -1;
    }
    const char *name = PyUnicode_AsUTF8(pattern);
    return name ? choose_scanner(name, portable, cutter) : -1;
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

/* -- Automatons ------------------------------------------------------------------------------ */

PyDoc_STRVAR(automaton_doc,
             "automaton(block_numbers, blocks, table, classes, asks_for_last_newline, /)\n--\n\n"
             "Return an automaton, which can take the place of a pattern's name.\n\n"
             "The arguments are those of bpe_tokenizer_tools.patterns.automaton.Automaton.\n\n"
             "Raises:\n"
             "    ValueError: the sizes do not fit, or a number points nowhere.");

static void free_automaton(PyObject *capsule)
{
    automaton_free(PyCapsule_GetPointer(capsule, automaton_name));
}

static PyObject *module_automaton(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *index, *blocks, *table;
    long long classes;
    int asks_for_last_newline;
    if (!PyArg_ParseTuple(args, "SSSLp:automaton", &index, &blocks, &table, &classes,
                          &asks_for_last_newline))
        return NULL;
    size_t row = sizeof(uint32_t) * ((size_t)classes + 2), size = (size_t)PyBytes_GET_SIZE(table);
    struct automaton *automaton = NULL;
    bool valid = classes > 0 && classes < 255 && size % row == 0 &&
                 PyBytes_GET_SIZE(index) == AUTOMATON_INDEX * sizeof(uint16_t) &&
                 PyBytes_GET_SIZE(blocks) % AUTOMATON_BLOCK == 0;
    if (valid) {
        /* What a bytes object holds is aligned for any number. */
        const struct automaton_tables tables = {
            .index = (const uint16_t *)(const void *)PyBytes_AS_STRING(index),
            .blocks = (const uint8_t *)PyBytes_AS_STRING(blocks),
            .table = (const uint32_t *)(const void *)PyBytes_AS_STRING(table),
            .n_blocks = (size_t)PyBytes_GET_SIZE(blocks) / AUTOMATON_BLOCK,
            .n_states = size / row,
            .n_classes = (size_t)classes,
            .asks_for_last_newline = asks_for_last_newline,
        };
        automaton = automaton_new(&tables, &valid);
    }
    if (!valid) {
        PyErr_SetString(PyExc_ValueError, "invalid automaton tables");
        return NULL;
    }
    if (!automaton)
        return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(automaton, automaton_name, free_automaton);
    if (!capsule)
        automaton_free(automaton);
    return capsule;
}

/* -- To look at ------------------------------------------------------------------------------ */

PyDoc_STRVAR(split_doc,
             "split(pattern, text, portable=False)\n--\n\n"
             "Cut a text as a pattern or an automaton does; return the UTF-8 of the pre-tokens.");

static PyObject *module_split(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"pattern", "text", "portable", NULL};
    PyObject *pattern, *string;
    struct cutter cutter;
    int portable = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OU|p:split", names, &pattern, &string,
                                     &portable))
        return NULL;
    if (cutter_of(pattern, portable, &cutter) < 0)
        return NULL;
    if (!can_cut(cutter)) {
        PyErr_SetString(PyExc_TypeError, "pattern must be a str or an automaton, got None");
        return NULL;
    }
    PyObject *utf8 = PyUnicode_AsUTF8String(string);
    PyObject *list = utf8 ? PyList_New(0) : NULL;
    if (!list) {
        Py_XDECREF(utf8);
        return NULL;
    }
    const char *text = PyBytes_AS_STRING(utf8);
    size_t ends[CHUNK_ROOM], count, position = 0, start = 0;
    while ((count = cut(cutter, (const uint8_t *)text, (size_t)PyBytes_GET_SIZE(utf8), &position,
                        ends, CHUNK_ROOM)) != 0)
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
             "Tell whether NFC surely leaves a text as it is.");

static PyObject *module_surely_nfc(PyObject *Py_UNUSED(module), PyObject *text)
{
    return check_string(text) < 0 ? NULL : PyBool_FromLong(is_surely_nfc(text));
}

PyMethodDef scan_methods[] = {
    {"automaton", module_automaton, METH_VARARGS, automaton_doc},
    {"split", (PyCFunction)(void (*)(void))module_split, METH_VARARGS | METH_KEYWORDS, split_doc},
    {"surely_nfc", module_surely_nfc, METH_O, surely_nfc_doc},
    {"character_classes", module_classes, METH_NOARGS, classes_doc},
    {NULL, NULL, 0, NULL},
};
