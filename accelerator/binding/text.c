/* Python's strings as UTF-8, and back. */

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

/* -- Back ------------------------------------------------------------------------------------- */

bool is_ascii(const uint8_t *bytes, size_t size)
{
    uint8_t any = 0;
    for (size_t i = 0; i < size; i++) /* compiled to wide instructions */
        any |= bytes[i];
    return any < 0x80;
}

/* Find how many characters valid UTF-8 has, and its largest byte. */
static size_t measure(const uint8_t *text, size_t size, uint8_t *largest)
{
    size_t n = size, done = 0;
    uint8_t most = 0;
    while (done < size) { /* by a byte, as far as it counts, so that the loop works on many */
        size_t stop = size - done < UINT8_MAX ? size : done + UINT8_MAX;
        uint8_t continued = 0;
        for (; done < stop; done++) {
            continued += (text[done] & 0xC0) == 0x80;
            most = text[done] > most ? text[done] : most;
        }
        n -= continued;
    }
    *largest = most;
    return n;
}

/* Whether 8 bytes, masked, have the expected bits; mask and bits repeat for each group of bytes. */
static inline bool are_like(const uint8_t *text, uint64_t mask, uint64_t expected)
{
    return (load_64(text) & mask) == expected;
}

static inline bool continues(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* Read text of `n` characters, if it is valid.  The characters of a script have one length, so
 * after a character, the same length is tried first.
 *
 * INVARIANT: zeros follow the text, so that no byte past it is read as a part of a character; each
 * character read was counted, by its byte that continues none. */
#define READ_UTF8(NAME, UNIT)                                                                      \
    static bool NAME(const uint8_t *text, const uint8_t *end, UNIT *out)                           \
    {                                                                                              \
        while (text < end) {                                                                       \
            if (text[0] < 0x80) {                                                                  \
                if (end - text >= 8 && are_like(text, UINT64_C(0x8080808080808080), 0)) {          \
                    for (int i = 0; i < 8; i++)                                                    \
                        out[i] = text[i];                                                          \
                    text += 8;                                                                     \
                    out += 8;                                                                      \
                    continue;                                                                      \
                }                                                                                  \
                *out++ = *text++;                                                                  \
                continue;                                                                          \
            }                                                                                      \
            while ((text[0] & 0xF0) == 0xE0) {                                                     \
                uint32_t c = (text[0] & 0xFu) << 12 | (text[1] & 0x3Fu) << 6 | (text[2] & 0x3Fu);  \
                if (!continues(text[1]) || !continues(text[2]) || c < 0x800 || is_surrogate(c))    \
                    return false;                                                                  \
                *out++ = (UNIT)c;                                                                  \
                text += 3;                                                                         \
            }                                                                                      \
            while ((text[0] & 0xE0) == 0xC0) {                                                     \
                if (text[0] < 0xC2 || !continues(text[1]))                                         \
                    return false;                                                                  \
                *out++ = (UNIT)((text[0] & 0x1Fu) << 6 | (text[1] & 0x3Fu));                       \
                text += 2;                                                                         \
            }                                                                                      \
            while (text[0] >= 0xF0) {                                                              \
                uint32_t c = (text[0] & 0x7u) << 18 | (text[1] & 0x3Fu) << 12 |                    \
                             (text[2] & 0x3Fu) << 6 | (text[3] & 0x3Fu);                           \
                if (text[0] > 0xF4 || !continues(text[1]) || !continues(text[2]) ||                \
                    !continues(text[3]) || c < 0x10000 || c > 0x10FFFF)                            \
                    return false;                                                                  \
                *out++ = (UNIT)c;                                                                  \
                text += 4;                                                                         \
            }                                                                                      \
            if (continues(text[0]))                                                                \
                return false;                                                                      \
        }                                                                                          \
        return text == end;                                                                        \
    }
READ_UTF8(read_latin1, Py_UCS1)
READ_UTF8(read_ucs2, Py_UCS2)
READ_UTF8(read_ucs4, Py_UCS4)

/* The string of valid UTF-8 that is not ASCII.  NULL if it is not valid, without an exception, or if
 * memory is short. */
static PyObject *valid_str(const uint8_t *text, size_t size)
{
    uint8_t largest;
    size_t n = measure(text, size, &largest);
    bool latin1 = largest < 0xC4, ucs2 = largest < 0xF0;
    PyObject *string = PyUnicode_New((Py_ssize_t)n, latin1 ? 0xFF : ucs2 ? 0xFFFF : 0x10FFFF);
    if (!string)
        return NULL;
    void *out = PyUnicode_DATA(string);
    bool valid = latin1 ? read_latin1(text, text + size, out)
                 : ucs2 ? read_ucs2(text, text + size, out)
                        : read_ucs4(text, text + size, out);
    if (!valid)
        Py_CLEAR(string);
    return string;
}

PyObject *str_of_utf8(uint8_t *text, size_t size, const char *errors)
{
    if (is_ascii(text, size)) {
        PyObject *string = PyUnicode_New((Py_ssize_t)size, 0x7F);
        if (string && size)
            memcpy(PyUnicode_1BYTE_DATA(string), text, size);
        return string;
    }
    memset(text + size, 0, UTF8_SLACK);
    PyObject *string = valid_str(text, size);
    if (string || PyErr_Occurred())
        return string;
    return PyUnicode_DecodeUTF8((const char *)text, (Py_ssize_t)size, errors);
}
