/* Respelling text for models that merge characters; component_twin.py explains why.
 *
 * " " and U+2581 swap places, and characters without a token get others in their stead. */

#include "binding/respell.h"

#include "base/utf8.h"
#include "binding/sources.h"
#include "binding/text.h"

enum {
    SPACE = 0x2581,             /* how SentencePiece writes a space */
    KNOWN_BYTES = 0x110000 / 8, /* a bit for each character */
    MANY = 0x80,                /* stand-ins, for the bytes from 0x80 on */
    BLOCK = 16,                 /* characters copied together */
};

struct rules {
    const uint8_t *known; /* a bit for each character that stays */
    Py_UCS2 stand_ins[MANY];
    Py_ssize_t n; /* MANY: one for each byte; 1: one for each unknown character; 0: these go */
    bool fuses;   /* one for a run of unknown characters */
    bool keeps_ascii;
};

static inline bool is_known(const struct rules *rules, Py_UCS4 c)
{
    return rules->known[c >> 3] >> (c & 7) & 1;
}

static inline Py_UCS4 swapped(Py_UCS4 c)
{
    return c == ' ' ? SPACE : c == SPACE ? ' ' : c;
}

/* -- Known characters ------------------------------------------------------------------------ */

/* Copy characters up to the first unknown one; return how many.  Blocks of ASCII and U+2581 are
 * compiled to wide instructions. */
#define COPY_KNOWN(NAME, UNIT, OUT)                                                                \
    static bool is_plain_##NAME(const UNIT *text)                                                  \
    {                                                                                              \
        UNIT others = 0;                                                                           \
        for (int k = 0; k < BLOCK; k++)                                                            \
            others |= (Py_UCS4)text[k] == SPACE ? 0 : text[k] & (UNIT)~0x7F;                       \
        return !others;                                                                            \
    }                                                                                              \
    static void copy_plain_##NAME(const UNIT *text, OUT *out)                                      \
    {                                                                                              \
        for (int k = 0; k < BLOCK; k++) {                                                          \
            OUT c = text[k];                                                                       \
            out[k] = c == ' ' ? SPACE : c == SPACE ? ' ' : c;                                      \
        }                                                                                          \
    }                                                                                              \
    static Py_ssize_t NAME(const struct rules *rules, const UNIT *text, Py_ssize_t n, OUT *out)    \
    {                                                                                              \
        Py_ssize_t i = 0;                                                                          \
        while (i < n) {                                                                            \
            if (rules->keeps_ascii && n - i >= BLOCK && is_plain_##NAME(text + i)) {               \
                copy_plain_##NAME(text + i, out + i);                                              \
                i += BLOCK;                                                                        \
                continue;                                                                          \
            }                                                                                      \
            for (Py_ssize_t stop = n - i < BLOCK ? n : i + BLOCK; i < stop; i++) {                 \
                if (!is_known(rules, text[i]))                                                     \
                    return i;                                                                      \
                out[i] = (OUT)swapped(text[i]);                                                    \
            }                                                                                      \
        }                                                                                          \
        return i;                                                                                  \
    }
COPY_KNOWN(copy_latin1, Py_UCS1, Py_UCS2)
COPY_KNOWN(copy_ucs2, Py_UCS2, Py_UCS2)
COPY_KNOWN(copy_ucs4, Py_UCS4, Py_UCS4)

/* -- Where characters come from -------------------------------------------------------------- */

/* The runs of the given text, read, and those of the respelled text, written. */
struct sources {
    struct source_run *given; /* a copy, which nobody else can change; NULL if nobody asked */
    Py_ssize_t at, used;      /* how many are used up, and characters of the next */
    struct source_run *made;
    Py_ssize_t n_made, room;
};

static int add_run(struct sources *sources, struct source_run run)
{
    if (sources->n_made == sources->room) {
        Py_ssize_t room = sources->room * 2 + 8;
        struct source_run *made = sources->made;
        if ((size_t)room > PY_SSIZE_T_MAX / sizeof *made ||
            !(made = PyMem_Realloc(made, (size_t)room * sizeof *made)))
            return -1;
        sources->made = made;
        sources->room = room;
    }
    sources->made[sources->n_made++] = run;
    return 0;
}

/* Use up to `n` characters of one run.  The runs have as many as the text. */
static struct source_run next_run(struct sources *sources, Py_ssize_t n)
{
    while (sources->used == sources->given[sources->at].length) {
        sources->at++;
        sources->used = 0;
    }
    struct source_run run = sources->given[sources->at];
    int32_t by = run.copied ? (int32_t)sources->used : 0;
    Py_ssize_t left = run.length - sources->used;
    run.length = (int32_t)(n < left ? n : left);
    sources->used += run.length;
    run.start += by;
    run.end += by;
    return run;
}

/* The next `n` characters are copied. */
static int copy_sources(struct sources *sources, Py_ssize_t n)
{
    while (n && sources->given) {
        struct source_run run = next_run(sources, n);
        if (add_run(sources, run) < 0)
            return -1;
        n -= run.length;
    }
    return 0;
}

/* The next `n` characters are replaced by `by` others. */
static int replace_sources(struct sources *sources, Py_ssize_t n, Py_ssize_t by)
{
    if (!sources->given)
        return 0;
    struct source_run whole = next_run(sources, 1);
    for (; n > 1; n--)
        whole.end = next_run(sources, 1).end;
    whole.length = (int32_t)by;
    whole.copied = 0;
    return by ? add_run(sources, whole) : 0;
}

/* -- Text ------------------------------------------------------------------------------------ */

/* A text that grows. */
struct writer {
    int kind; /* PyUnicode_2BYTE_KIND or PyUnicode_4BYTE_KIND */
    void *text;
    Py_ssize_t length, room;
};

/* Make room for `n` more characters. */
static int reserve(struct writer *out, Py_ssize_t n)
{
    if (n <= out->room - out->length)
        return 0;
    Py_ssize_t room = out->length + n + out->length / 2;
    void *text = room <= PY_SSIZE_T_MAX / 4 - 1 ? PyMem_Realloc(out->text, (size_t)(room * out->kind))
                                                : NULL;
    if (!text)
        return -1;
    out->text = text;
    out->room = room;
    return 0;
}

static Py_ssize_t copy_known(const struct rules *rules, int kind, const void *text, Py_ssize_t at,
                             Py_ssize_t n, struct writer *out)
{
    Py_UCS2 *narrow = (Py_UCS2 *)out->text + out->length;
    switch (kind) {
    case PyUnicode_1BYTE_KIND:
        return copy_latin1(rules, (const Py_UCS1 *)text + at, n - at, narrow);
    case PyUnicode_2BYTE_KIND:
        return copy_ucs2(rules, (const Py_UCS2 *)text + at, n - at, narrow);
    default:
        return copy_ucs4(rules, (const Py_UCS4 *)text + at, n - at,
                         (Py_UCS4 *)out->text + out->length);
    }
}

/* Write what stands in for an unknown character; return how many characters that are. */
static int stand_in(const struct rules *rules, Py_UCS4 c, struct writer *out)
{
    unsigned n = (unsigned)rules->n;
    uint32_t bytes = 0x80;
    if (n == MANY)
        bytes = utf8_bytes(c, 0x10FFFF, &n);
    for (unsigned i = 0; i < n; i++, bytes >>= 8)
        PyUnicode_WRITE(out->kind, out->text, out->length++, rules->stand_ins[bytes & 0x7F]);
    return (int)n;
}

static int respell(const struct rules *rules, PyObject *string, struct writer *out,
                   struct sources *sources)
{
    int kind = (int)PyUnicode_KIND(string);
    const void *text = PyUnicode_DATA(string);
    Py_ssize_t n = PyUnicode_GET_LENGTH(string), at = 0;
    while (at < n) {
        if (reserve(out, n - at + 4) < 0) /* 4 that stand in for one */
            return -1;
        Py_ssize_t copied = copy_known(rules, kind, text, at, n, out);
        out->length += copied;
        at += copied;
        if (copy_sources(sources, copied) < 0)
            return -1;
        if (at == n)
            break;
        Py_ssize_t end = at + 1;
        while (rules->fuses && end < n && !is_known(rules, PyUnicode_READ(kind, text, end)))
            end++;
        int written = stand_in(rules, PyUnicode_READ(kind, text, at), out);
        if (replace_sources(sources, end - at, written) < 0)
            return -1;
        at = end;
    }
    return 0;
}

/* -- The function ---------------------------------------------------------------------------- */

PyDoc_STRVAR(respell_doc,
             "respell(text, known, stand_ins, fuses, runs=None, /)\n--\n\n"
             "Return a text in which \" \" and U+2581 have swapped places, and others stand in for\n"
             "unknown characters.  With `runs`, which say where the characters of the text come from\n"
             "as for `Encoder.offsets`, return those of the new text, too, as bytes.\n\n"
             "Args:\n"
             "    known: a bit for each character, from the lowest bit of the first byte on.\n"
             "    stand_ins: 128 characters, for the bytes from 0x80 on; or 1, for any unknown\n"
             "        character; or none: then unknown characters are left out.\n"
             "    fuses: 1 character stands in for a run of unknown ones.");

/* Returns 0, or -1 and an exception. */
static int read_rules(PyObject *known, PyObject *stand_ins, struct rules *rules)
{
    rules->known = (const uint8_t *)PyBytes_AS_STRING(known);
    rules->n = PyUnicode_GET_LENGTH(stand_ins);
    bool fits = PyBytes_GET_SIZE(known) == KNOWN_BYTES &&
                PyUnicode_KIND(stand_ins) <= PyUnicode_2BYTE_KIND;
    for (int i = 0; fits && i < 0x80 / 8; i++)
        rules->keeps_ascii &= rules->known[i] == 0xFF;
    bool by_bytes = rules->n == MANY && rules->keeps_ascii && !rules->fuses;
    if (!fits || !(rules->n < 2 || by_bytes)) {
        PyErr_SetString(PyExc_ValueError, "these are not the rules of a speller");
        return -1;
    }
    for (Py_ssize_t i = 0; i < rules->n; i++)
        rules->stand_ins[i] = (Py_UCS2)PyUnicode_READ_CHAR(stand_ins, i);
    rules->keeps_ascii &= is_known(rules, SPACE);
    return 0;
}

/* Copy the runs of a text, so that nobody changes them meanwhile.  Returns 0, or -1 and an
 * exception. */
static int read_sources(PyObject *object, PyObject *text, struct sources *sources)
{
    Py_buffer view;
    if (object == Py_None)
        return 0;
    if (get_sources(object, PyUnicode_GET_LENGTH(text), &view) < 0)
        return -1;
    Py_ssize_t size = view.len, n_runs = size / (Py_ssize_t)sizeof *sources->given;
    sources->given = PyMem_Malloc((size_t)size + 1);
    if (sources->given)
        memcpy(sources->given, view.buf, (size_t)size);
    PyBuffer_Release(&view);
    if (!sources->given) {
        PyErr_NoMemory();
        return -1;
    }
    if (sources_fit(sources->given, n_runs, PyUnicode_GET_LENGTH(text)))
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "the runs changed meanwhile");
    return -1;
}

static bool stays(const struct rules *rules, PyObject *text)
{
    return rules->keeps_ascii && PyUnicode_CheckExact(text) && PyUnicode_IS_ASCII(text) &&
           !memchr(PyUnicode_DATA(text), ' ', (size_t)PyUnicode_GET_LENGTH(text));
}

static PyObject *respelled(const struct rules *rules, PyObject *text, struct sources *sources)
{
    if (stays(rules, text)) {
        if (copy_sources(sources, PyUnicode_GET_LENGTH(text)) < 0)
            return PyErr_NoMemory();
        return Py_NewRef(text);
    }
    bool wide = PyUnicode_KIND(text) == PyUnicode_4BYTE_KIND;
    struct writer out = {wide ? PyUnicode_4BYTE_KIND : PyUnicode_2BYTE_KIND, NULL, 0, 0};
    PyObject *made = respell(rules, text, &out, sources) < 0
                         ? PyErr_NoMemory()
                         : PyUnicode_FromKindAndData(out.kind, out.text, out.length);
    PyMem_Free(out.text);
    return made;
}

static PyObject *respell_text(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *text, *known, *stand_ins, *runs = Py_None;
    int fuses;
    if (!PyArg_ParseTuple(args, "O!SUp|O:respell", &PyUnicode_Type, &text, &known, &stand_ins,
                          &fuses, &runs))
        return NULL;
    struct rules rules = {.fuses = fuses, .keeps_ascii = true};
    struct sources sources = {NULL, 0, 0, NULL, 0, 0};
    PyObject *made = NULL, *result = NULL;
    if (check_string(text) == 0 && read_rules(known, stand_ins, &rules) == 0 &&
        read_sources(runs, text, &sources) == 0)
        made = respelled(&rules, text, &sources);
    if (made && !sources.given)
        result = Py_NewRef(made);
    else if (made)
        result = Py_BuildValue("Oy#", made, sources.made ? (const char *)sources.made : "",
                               sources.n_made * (Py_ssize_t)sizeof *sources.made);
    Py_XDECREF(made);
    PyMem_Free(sources.given);
    PyMem_Free(sources.made);
    return result;
}

PyMethodDef respell_methods[] = {
    {"respell", respell_text, METH_VARARGS, respell_doc},
    {NULL, NULL, 0, NULL},
};
