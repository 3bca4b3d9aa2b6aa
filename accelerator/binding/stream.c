/* Encoding text that arrives in chunks: the type `Stream`.
 *
 * It keeps the text after the last cut, as UTF-8.  When it finds another place to cut, it encodes
 * the text before it.  Each chunk costs only its own length, however much text is kept.
 *
 * Text can be cut between two characters if each side is processed independently of the other.
 * These two characters, and the one after them, decide that:
 *
 * - The split pattern always cuts there: see last_safe_cut.
 * - NFC leaves all three as they are, and joins none with what comes before it: so each side can be
 *   normalized alone, and the pattern sees these two characters.  Of the other forms, we only know
 *   here that they leave ASCII alone.
 * - No added token contains both, and none that begins or ends there looks past the cut.  White
 *   space that belongs to a token after it is on its side: the character before a cut is a letter
 *   or a number.
 *
 * If the text before a cut contains tokens, or normalization changes it, Python encodes it. */

#include "binding/stream.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "binding/finder.h"
#include "binding/text.h"
#include "scan/normal.h"

enum { PAIRS = 1 << 16 };

typedef struct {
    PyObject_HEAD
    Encoder *encoder;
    PyObject *chunks;         /* an iterator; NULL at the end */
    PyObject *refuse, *encode; /* functions */
    PyObject *finder, *together; /* a Finder of bytes, and PAIRS bytes; NULL if there are no tokens */
    atomic_flag at_work;

    uint8_t *text;
    size_t size, room;
    size_t searched; /* the first character that may still be just before a cut */
} Stream;

/* -- The kept text --------------------------------------------------------------------------- */

/* The start of the character that ends at `end`, which is not 0. */
static inline size_t character_before(const uint8_t *text, size_t end)
{
    do
        end--;
    while ((text[end] & 0xC0) == 0x80);
    return end;
}

/* Append a string that check_string has checked.  Returns 0; 1 if it has a surrogate; or -1 and an
 * exception. */
static int hold(Stream *self, PyObject *string)
{
    size_t length = (size_t)PyUnicode_GET_LENGTH(string);
    bool ascii = PyUnicode_IS_ASCII(string);
    size_t more = ascii ? length : 4 * length + 4;
    if (!length) /* there may be no buffer yet */
        return 0;
    if (length > SIZE_MAX / 16 || self->size > SIZE_MAX / 4) {
        PyErr_NoMemory();
        return -1;
    }
    if (self->room - self->size < more) {
        size_t room = self->size + more + self->size / 2;
        uint8_t *text = PyMem_Realloc(self->text, room);
        if (!text) {
            PyErr_NoMemory();
            return -1;
        }
        self->text = text;
        self->room = room;
    }
    if (ascii) {
        memcpy(self->text + self->size, PyUnicode_DATA(string), length);
        self->size += length;
        return 0;
    }
    uint8_t *end = write_utf8(string, self->text + self->size,
                              self->encoder->vocabulary.use_avx2);
    if (!end)
        return 1;
    self->size = (size_t)(end - self->text);
    return 0;
}

/* Forget the first bytes, up to a cut. */
static void drop(Stream *self, size_t n)
{
    self->size -= n;
    self->searched -= self->searched < n ? self->searched : n;
    memmove(self->text, self->text + n, self->size);
    if (self->room > KEPT_IDS && self->size < KEPT_IDS / 2) { /* after an exceptionally long chunk */
        uint8_t *text = PyMem_Realloc(self->text, KEPT_IDS);
        if (text) {
            self->text = text;
            self->room = KEPT_IDS;
        }
    }
}

/* -- Cutting --------------------------------------------------------------------------------- */

/* Whether normalization leaves a character as it is, and doesn't join it with the one before. */
static bool is_stable(const Encoder *encoder, const uint8_t *text)
{
    if (text[0] < 0x80 || !encoder->ascii_only)
        return true;
    if (!encoder->or_nfc)
        return false;
    uint32_t c = text[1] & 0x3Fu;
    if (text[0] < 0xE0)
        return is_normal_start((text[0] & 0x1Fu) << 6 | c);
    c = c << 6 | (text[2] & 0x3Fu);
    if (text[0] < 0xF0)
        return is_normal_start((text[0] & 0xFu) << 12 | c);
    return is_normal_start((text[0] & 0x7u) << 18 | c << 6 | (text[3] & 0x3Fu));
}

/* Whether text can be cut where the pattern cuts; with a normalizer, the next character must be
 * followed by another. */
static bool can_cut_at(const Stream *self, size_t at)
{
    const uint8_t *text = self->text;
    if (self->together && PyBytes_AS_STRING(self->together)[text[at - 1] << 8 | text[at]])
        return false;
    size_t after = at + 1;
    while (self->encoder->ascii_only && (text[after] & 0xC0) == 0x80)
        after++;
    return !self->encoder->ascii_only ||
           (is_stable(self->encoder, text + character_before(text, at)) &&
            is_stable(self->encoder, text + at) && is_stable(self->encoder, text + after));
}

/* The last new place to cut at; 0 if there is none. */
static size_t new_cut(Stream *self)
{
    size_t from = self->searched, end = self->size;
    if (self->encoder->ascii_only && end > 0)
        end = character_before(self->text, end);
    if (end <= from)
        return 0;
    self->searched = character_before(self->text, end);
    for (size_t cut; (cut = last_safe_cut(self->text + from, end - from)) > 0; end = from + cut)
        if (can_cut_at(self, from + cut))
            return from + cut;
    return 0;
}

/* -- Encoding -------------------------------------------------------------------------------- */

/* Whether the first bytes need only cutting and merging: 1 or 0, or -1 and an exception. */
static int is_all(const Stream *self, size_t n)
{
    const Encoder *encoder = self->encoder;
    if (self->finder) {
        struct matches matches = {0};
        int status = finder_find(finder_of(self->finder), self->text, 1, 0, n, &matches);
        free(matches.items);
        if (status < 0) {
            PyErr_NoMemory();
            return -1;
        }
        if (matches.n)
            return 0;
    }
    if (!encoder->ascii_only)
        return 1;
    if (encoder->or_nfc)
        return utf8_kind(self->text, n) == UTF8_SURELY_NFC;
    for (size_t i = 0; i < n; i++)
        if (self->text[i] >= 0x80)
            return 0;
    return 1;
}

/* Encode the first bytes here.  A list, or NULL and an exception. */
static PyObject *encode_all(Stream *self, size_t n)
{
    Encoder *encoder = self->encoder;
    struct worker *worker = need_worker(encoder);
    if (!worker)
        return NULL;
    int status;
    if (n < LONG_TEXT) {
        status = encode_text(&encoder->vocabulary, worker, encoder->cutter, self->text, n, true);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = encode_text(&encoder->vocabulary, worker, encoder->cutter, self->text, n, true);
        Py_END_ALLOW_THREADS
    }
    PyObject *list = status < 0 ? PyErr_NoMemory() : list_of(encoder, worker->ids, worker->n_ids);
    put_back(encoder, worker);
    return list;
}

/* Encode the first bytes, and forget them.  NULL and an exception if that fails. */
static PyObject *encode_first(Stream *self, size_t n)
{
    PyObject *ids = NULL;
    int all = is_all(self, n);
    if (all > 0)
        ids = encode_all(self, n);
    else if (all == 0) {
        PyObject *text = PyUnicode_DecodeUTF8((const char *)self->text, (Py_ssize_t)n, NULL);
        ids = text ? PyObject_CallOneArg(self->encode, text) : NULL;
        Py_XDECREF(text);
    }
    drop(self, n);
    return ids;
}

/* -- Chunks ---------------------------------------------------------------------------------- */

/* Take in a chunk.  Returns 0, or -1 and an exception. */
static int take_in(Stream *self, PyObject *chunk)
{
    int status = 1;
    if (PyUnicode_Check(chunk))
        status = check_string(chunk) < 0 ? -1 : hold(self, chunk);
    if (status <= 0)
        return status;
    PyObject *none = PyObject_CallOneArg(self->refuse, chunk);
    Py_XDECREF(none);
    if (none)
        PyErr_SetString(PyExc_TypeError, "expected a chunk to be a str");
    return -1;
}

/* The ids of the next part; NULL if there is none, maybe with an exception. */
static PyObject *next_ids(Stream *self)
{
    while (self->chunks) {
        PyObject *chunk = PyIter_Next(self->chunks);
        if (!chunk) {
            Py_CLEAR(self->chunks);
            return PyErr_Occurred() || !self->size ? NULL : encode_first(self, self->size);
        }
        int status = take_in(self, chunk);
        Py_DECREF(chunk);
        if (status < 0 || PyErr_CheckSignals() < 0)
            return NULL;
        size_t cut = new_cut(self);
        if (cut)
            return encode_first(self, cut);
    }
    return NULL;
}

static PyObject *stream_next(Stream *self)
{
    if (atomic_flag_test_and_set(&self->at_work)) {
        PyErr_SetString(PyExc_ValueError, "the stream is being read already");
        return NULL;
    }
    PyObject *ids = next_ids(self);
    if (!ids)
        Py_CLEAR(self->chunks); /* an error ends the stream, too */
    atomic_flag_clear(&self->at_work);
    return ids;
}

PyDoc_STRVAR(close_doc,
             "close()\n--\n\n"
             "End the stream, as a generator's `close` does, and release its source.\n\n"
             "Raises:\n"
             "    ValueError: the stream is being read.");

static PyObject *stream_close(Stream *self, PyObject *Py_UNUSED(ignored))
{
    if (atomic_flag_test_and_set(&self->at_work)) {
        PyErr_SetString(PyExc_ValueError, "the stream is being read already");
        return NULL;
    }
    PyObject *chunks = self->chunks;
    self->chunks = NULL;
    atomic_flag_clear(&self->at_work);
    Py_XDECREF(chunks); /* last: it may run code */
    Py_RETURN_NONE;
}

static PyMethodDef stream_methods[] = {
    {"close", (PyCFunction)stream_close, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

/* -- The object ------------------------------------------------------------------------------ */

PyDoc_STRVAR(stream_doc,
             "Stream(encoder, chunks, refuse, encode, finder=None, together=None, /)\n--\n\n"
             "Encodes text that arrives in chunks: an iterator over lists of ids.\n\n"
             "Args:\n"
             "    encoder: an Encoder for which cuts_safely is true.\n"
             "    chunks: an iterable of strings.\n"
             "    refuse: called with a chunk that is not text; it raises an exception.\n"
             "    encode: returns the ids of text with tokens in it, or that may not be normalized.\n"
             "    finder: a Finder of added tokens, spelled as UTF-8, each byte as a character.\n"
             "    together: 65,536 bytes; the one at 256 * a + b is not 0 if text must not be cut between\n"
             "        the bytes a and b, because of a token.\n\n"
             "Raises:\n"
             "    ValueError: the encoder's pattern has no safe cuts.");

static int check_encoder(PyObject *object)
{
    if (!is_encoder(object)) {
        PyErr_Format(PyExc_TypeError, "encoder must be an Encoder, got %.100s",
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    if (((Encoder *)object)->cutter.cuts_safely)
        return 0;
    PyErr_SetString(PyExc_ValueError, "expected an encoder whose pattern has safe cuts");
    return -1;
}

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *encoder, *chunks, *refuse, *encode, *finder = NULL, *together = NULL;
    if (kwargs && PyDict_GET_SIZE(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Stream() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOOO|OS:Stream", &encoder, &chunks, &refuse, &encode, &finder,
                          &together) ||
        check_encoder(encoder) < 0)
        return NULL;
    if (!finder != !together || (finder && (!finder_of(finder) || PyBytes_GET_SIZE(together) != PAIRS))) {
        PyErr_SetString(PyExc_TypeError, "Stream() takes a Finder and 65,536 bytes, or neither");
        return NULL;
    }
    Stream *self = (Stream *)type->tp_alloc(type, 0); /* all zero */
    if (!self)
        return NULL;
    atomic_flag_clear(&self->at_work);
    self->encoder = (Encoder *)Py_NewRef(encoder);
    self->refuse = Py_NewRef(refuse);
    self->encode = Py_NewRef(encode);
    self->finder = Py_XNewRef(finder);
    self->together = Py_XNewRef(together);
    self->chunks = PyObject_GetIter(chunks);
    if (!self->chunks)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int stream_traverse(Stream *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->encoder);
    Py_VISIT(self->chunks);
    Py_VISIT(self->refuse);
    Py_VISIT(self->encode);
    return 0;
}

/* Break cycles: the chunks may refer to their reader. */
static int stream_clear(Stream *self)
{
    Py_CLEAR(self->chunks);
    return 0;
}

static void stream_dealloc(Stream *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->chunks);
    Py_XDECREF(self->encoder);
    Py_XDECREF(self->refuse);
    Py_XDECREF(self->encode);
    Py_XDECREF(self->finder);
    Py_XDECREF(self->together);
    PyMem_Free(self->text);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyType_Slot stream_slots[] = {
    {Py_tp_doc, (void *)stream_doc},
    {Py_tp_new, (void *)stream_new},
    {Py_tp_dealloc, (void *)stream_dealloc},
    {Py_tp_traverse, (void *)stream_traverse},
    {Py_tp_clear, (void *)stream_clear},
    {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)stream_next},
    {Py_tp_methods, stream_methods},
    {0, NULL},
};

PyType_Spec stream_spec = {
    .name = "_bpe_tokenizer.native.Stream",
    .basicsize = sizeof(Stream),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = stream_slots,
};
