/* Python's strings as UTF-8. */

#include "binding/text.h"

#include "base/processor.h"
#include "base/utf8.h"
#include "scan/normal.h"

int get_seed(uint64_t *seed)
{
    PyObject *name = PyUnicode_FromString("_bpe_tokenizer");
    Py_hash_t hash = name ? PyObject_Hash(name) : -1;
    Py_XDECREF(name);
    *seed = (uint64_t)hash;
    return hash == -1 ? -1 : 0;
}

/* PyUnicode_AsUTF8AndSize would keep its result in the string for as long as that lives. */

/* Whether 8 characters of a width in bytes are ASCII.  Text of any language has runs of it. */
enum { ASCII_RUN = 8 };

static inline bool is_ascii_run(const void *text, size_t width)
{
    const uint64_t high_bits = width == 1   ? UINT64_C(0x8080808080808080)
                               : width == 2 ? UINT64_C(0xFF80FF80FF80FF80)
                                            : UINT64_C(0xFFFFFF80FFFFFF80);
    uint64_t any = 0;
    for (size_t i = 0; i < width; i++) {
        uint64_t word;
        memcpy(&word, (const char *)text + i * sizeof word, sizeof word);
        any |= word;
    }
    return (any & high_bits) == 0;
}

#define WRITE_UTF8(NAME, UNIT, HIGHEST, WIDE)                                                      \
    static uint8_t *NAME(const UNIT *text, Py_ssize_t length, uint8_t *out, bool use_avx2)         \
    {                                                                                              \
        bool surrogate = false;                                                                    \
        size_t done = use_avx2 ? WIDE(text, (size_t)length, &out, &surrogate) : 0;                 \
        text += done;                                                                              \
        length -= (Py_ssize_t)done;                                                                \
        for (const UNIT *end = text + length; text < end; text++) {                                \
            while (end - text > ASCII_RUN && text[0] < 0x80 && text[ASCII_RUN - 1] < 0x80 &&       \
                   is_ascii_run(text, sizeof *text)) {                                             \
                for (int i = 0; i < ASCII_RUN; i++)                                                \
                    *out++ = (uint8_t)text[i];                                                     \
                text += ASCII_RUN;                                                                 \
            }                                                                                      \
            unsigned width;                                                                        \
            store_32(out, utf8_bytes(*text, HIGHEST, &width));                                     \
            surrogate |= is_surrogate(*text);                                                      \
            out += width;                                                                          \
        }                                                                                          \
        return surrogate ? NULL : out;                                                             \
    }
#define NOT_WIDE(text, length, out, surrogate) 0
WRITE_UTF8(write_latin1, Py_UCS1, 0xFF, NOT_WIDE)
#if defined(BPE_WITH_AVX2)
WRITE_UTF8(write_ucs2, Py_UCS2, 0xFFFF, write_ucs2_avx2)
WRITE_UTF8(write_ucs4, Py_UCS4, 0x10FFFF, write_ucs4_avx2)
#else
WRITE_UTF8(write_ucs2, Py_UCS2, 0xFFFF, NOT_WIDE)
WRITE_UTF8(write_ucs4, Py_UCS4, 0x10FFFF, NOT_WIDE)
#endif

static uint8_t *write_utf8_between(PyObject *string, Py_ssize_t start, Py_ssize_t end, uint8_t *out,
                                   bool use_avx2)
{
    const void *data = PyUnicode_DATA(string);
    switch (PyUnicode_KIND(string)) {
    case PyUnicode_1BYTE_KIND:
        return write_latin1((const Py_UCS1 *)data + start, end - start, out, use_avx2);
    case PyUnicode_2BYTE_KIND:
        return write_ucs2((const Py_UCS2 *)data + start, end - start, out, use_avx2);
    default:
        return write_ucs4((const Py_UCS4 *)data + start, end - start, out, use_avx2);
    }
}

uint8_t *write_utf8(PyObject *string, uint8_t *out, bool use_avx2)
{
    return write_utf8_between(string, 0, PyUnicode_GET_LENGTH(string), out, use_avx2);
}

/* Check that an object is a string, ready to be read. */
int check_string(PyObject *object)
{
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "text must be a str, got %.100s", Py_TYPE(object)->tp_name);
        return -1;
    }
#if PY_VERSION_HEX < 0x030C0000
    return PyUnicode_READY(object);
#else
    return 0;
#endif
}

bool is_surely_nfc(PyObject *string)
{
    return surely_nfc(PyUnicode_DATA(string), (int)PyUnicode_KIND(string),
                      (size_t)PyUnicode_GET_LENGTH(string));
}

/* Raise the UnicodeEncodeError that Python raises for a string with surrogates. */
void raise_surrogate(PyObject *string)
{
    Py_XDECREF(PyUnicode_AsUTF8String(string));
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "a surrogate that Python encodes");
}

const uint8_t *checked_utf8_between(struct worker *worker, PyObject *string, size_t start,
                                    size_t end, size_t *size)
{
    *size = end - start;
    if (PyUnicode_IS_ASCII(string))
        return (const uint8_t *)PyUnicode_DATA(string) + start;
    /* Latin-1 takes 2 bytes a character at most, UCS-2 3, UCS-4 4. */
    size_t widest = PyUnicode_KIND(string) == PyUnicode_1BYTE_KIND   ? 2
                    : PyUnicode_KIND(string) == PyUnicode_2BYTE_KIND ? 3
                                                                     : 4;
    if (worker_reserve_text(worker, (end - start) * widest + 4) < 0) { /* 4 are written at once */
        *size = 0;
        return NULL;
    }
    uint8_t *stop = write_utf8_between(string, (Py_ssize_t)start, (Py_ssize_t)end, worker->text,
                                       worker->use_avx2);
    if (!stop)
        return NULL;
    *size = (size_t)(stop - worker->text);
    return worker->text;
}

const uint8_t *checked_utf8(struct worker *worker, PyObject *string, size_t *size)
{
    return checked_utf8_between(worker, string, 0, (size_t)PyUnicode_GET_LENGTH(string), size);
}

const uint8_t *utf8_of(struct worker *worker, PyObject *string, size_t *size)
{
    if (check_string(string) < 0)
        return NULL;
    const uint8_t *text = checked_utf8(worker, string, size);
    if (!text && *size)
        raise_surrogate(string);
    else if (!text)
        PyErr_NoMemory();
    return text;
}
