/* Python's side of the encoder: the type `Encoder`.
 *
 * Python has checked the arguments.  C checks again everything that could make it read or write
 * wrong memory.  An OverflowError says that something is too large for this engine, not that it is
 * wrong: the Python engine takes it. */

#include "binding/encoder.h"
#include "binding/scan.h"
#include "binding/text.h"

enum {
    AHEAD = 32, /* int objects fetched ahead of their use */
};

/* -- Workers --------------------------------------------------------------------------------- */

struct worker *take_worker(Encoder *self)
{
    for (int i = 0; i < SPARE_WORKERS; i++) {
        struct worker *worker = atomic_exchange_explicit(&self->spare[i], NULL,
                                                         memory_order_acquire);
        if (worker)
            return worker;
    }
    struct worker *worker = worker_new();
    if (worker)
        worker->use_avx2 = self->vocabulary.use_avx2;
    return worker;
}

void put_back(Encoder *self, struct worker *worker)
{
    worker_trim(worker);
    for (int i = 0; i < SPARE_WORKERS; i++) {
        struct worker *none = NULL;
        if (atomic_compare_exchange_strong_explicit(&self->spare[i], &none, worker,
                                                    memory_order_release, memory_order_relaxed))
            return;
    }
    worker_free(worker);
}

struct worker *need_worker(Encoder *self)
{
    struct worker *worker = take_worker(self);
    if (!worker)
        PyErr_NoMemory();
    return worker;
}

/* -- The encoder object ---------------------------------------------------------------------- */

static void encoder_dealloc(Encoder *self)
{
    PyTypeObject *type = Py_TYPE(self);
    for (int i = 0; i < SPARE_WORKERS; i++)
        worker_free(atomic_load(&self->spare[i]));
    free_spans(atomic_load(&self->spans));
    PyMem_Free(atomic_load(&self->scratch));
    for (uint32_t id = 0; self->ints && id < self->tokens.n_ids; id++)
        Py_XDECREF(atomic_load(&self->ints[id]));
    PyMem_Free((void *)self->ints);
    if (!self->owner) {
        vocabulary_release(&self->vocabulary);
        tokens_release(&self->tokens);
        PyMem_Free(self->lists.ids);
        PyMem_Free(self->lists.merges);
    }
    superwords_free(self->superwords);
    Py_XDECREF(self->owner);
    Py_XDECREF(self->pattern);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

Encoder *new_encoder(PyTypeObject *type)
{
    Encoder *self = (Encoder *)type->tp_alloc(type, 0); /* all zero */
    for (int i = 0; self && i < SPARE_WORKERS; i++)
        atomic_init(&self->spare[i], NULL);
    if (self) {
        atomic_init(&self->spans, NULL);
        atomic_init(&self->scratch, NULL);
    }
    return self;
}

int open_ints(Encoder *self)
{
    self->ints = PyMem_Calloc(self->tokens.n_ids, sizeof *self->ints);
    if (self->ints)
        return 0;
    PyErr_NoMemory();
    return -1;
}

bool is_encoder(PyObject *object)
{
    /* Recognize the type by its function: the type object isn't at hand here. */
    return Py_TYPE(object)->tp_dealloc == (destructor)encoder_dealloc;
}

PyObject *make_int(const Encoder *self, uint32_t id)
{
    PyObject *none = NULL, *number = PyLong_FromLong((long)id);
    if (number && !atomic_compare_exchange_strong(&self->ints[id], &none, number)) {
        Py_DECREF(number); /* another thread was first */
        number = none;
    }
    return Py_XNewRef(number);
}

/* -- Loading --------------------------------------------------------------------------------- */

uint32_t read_id(PyObject *object)
{
    if (!PyLong_Check(object)) {
        PyErr_Format(PyExc_TypeError, "an id must be an int, got %.100s",
                     Py_TYPE(object)->tp_name);
        return NO_TOKEN;
    }
    long value = PyLong_AsLong(object);
    if (value == -1 && PyErr_Occurred())
        return NO_TOKEN;
    if (value < 0) {
        PyErr_Format(PyExc_ValueError, "id %ld is negative", value);
        return NO_TOKEN;
    }
    if (value >= MAX_IDS) {
        PyErr_Format(PyExc_OverflowError, "id %ld is too large, expected less than %d", value,
                     MAX_IDS);
        return NO_TOKEN;
    }
    return (uint32_t)value;
}

static int read_largest(PyObject *ids, uint32_t *n_ids)
{
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(ids, &at, &key, &value);) {
        uint32_t id = read_id(value);
        if (id == NO_TOKEN)
            return -1;
        *n_ids = id >= *n_ids ? id + 1 : *n_ids;
    }
    return 0;
}

/* Add a token, unless its id already has one.  There is room in the lists. */
static int add_token(Encoder *self, uint32_t id, const uint8_t *bytes, size_t length)
{
    if (tokens_have(&self->tokens, id)) {
        self->lists.shares_ids = true;
        return 0;
    }
    self->lists.ids[self->lists.n_ids++] = id;
    if (tokens_add(&self->tokens, id, bytes, length) == 0)
        return 0;
    PyErr_NoMemory();
    return -1;
}

/* Add the tokens of a dict, bytes to id. */
static int read_tokens(Encoder *self, PyObject *vocab)
{
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(vocab, &at, &key, &value);) {
        if (!PyBytes_Check(key)) {
            PyErr_SetString(PyExc_TypeError, "tokens must be bytes");
            return -1;
        }
        uint32_t id = read_id(value);
        if (id == NO_TOKEN)
            return -1;
        if (id >= self->tokens.n_ids) {
            PyErr_SetString(PyExc_RuntimeError, "the vocabulary changed while it was read");
            return -1;
        }
        if (add_token(self, id, (const uint8_t *)PyBytes_AS_STRING(key),
                      (size_t)PyBytes_GET_SIZE(key)) < 0)
            return -1;
    }
    return 0;
}

/* Add the tokens of another encoder, without those added to it. */
static int copy_tokens(Encoder *self, const Encoder *other)
{
    for (uint32_t i = 0; i < other->lists.n_vocab; i++) {
        uint32_t id = other->lists.ids[i];
        struct token token = other->tokens.by_id[id];
        if (add_token(self, id, other->tokens.bytes + token.at, token.length) < 0)
            return -1;
    }
    return 0;
}

static int read_byte_ids(Encoder *self, uint32_t byte_ids[256])
{
    for (int byte = 0; byte < 256; byte++) {
        uint8_t bytes[1] = {(uint8_t)byte};
        byte_ids[byte] = tokens_find(&self->tokens, bytes, 1, bytes, 0);
        if (byte_ids[byte] == NO_TOKEN) {
            PyErr_Format(PyExc_ValueError, "no token for byte %d", byte);
            return -1;
        }
    }
    return 0;
}

/* Find the token that a merge makes. */
static int find_joined(const Encoder *self, uint32_t guess, struct merge *merge)
{
    const struct tokens *tokens = &self->tokens;
    if (tokens_have(tokens, merge->left) && tokens_have(tokens, merge->right)) {
        struct token left = tokens->by_id[merge->left], right = tokens->by_id[merge->right];
        merge->joined = tokens_find_by_guess(tokens, guess, tokens->bytes + left.at, left.length,
                                             tokens->bytes + right.at, right.length);
        if (merge->joined != NO_TOKEN)
            return 0;
    }
    PyErr_Format(PyExc_ValueError, "merge (%u, %u) makes no token", merge->left, merge->right);
    return -1;
}

/* Read one merge, a tuple of two ids. */
static int read_merge(PyObject *item, struct id_pair *merge)
{
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) {
        PyErr_SetString(PyExc_TypeError, "a merge must be a tuple of two ids");
        return -1;
    }
    if ((merge->left = read_id(PyTuple_GET_ITEM(item, 0))) == NO_TOKEN ||
        (merge->right = read_id(PyTuple_GET_ITEM(item, 1))) == NO_TOKEN)
        return -1;
    return 0;
}

/* Read the merges of a tuple, or those of another encoder. */
static int list_merges(Encoder *self, PyObject *merges, const Encoder *other)
{
    Py_ssize_t n = other ? (Py_ssize_t)other->lists.n_merges : PyTuple_GET_SIZE(merges);
    if (n > MAX_MERGES) {
        PyErr_Format(PyExc_OverflowError, "expected at most %d merges", MAX_MERGES);
        return -1;
    }
    struct id_pair *pairs = self->lists.merges = PyMem_New(struct id_pair, n + 1);
    if (!pairs) {
        PyErr_NoMemory();
        return -1;
    }
    self->lists.n_merges = (uint32_t)n;
    if (other && n)
        memcpy(pairs, other->lists.merges, (size_t)n * sizeof *pairs);
    for (Py_ssize_t i = 0; !other && i < n; i++)
        if (read_merge(PyTuple_GET_ITEM(merges, i), &pairs[i]) < 0)
            return -1;
    return 0;
}

static int load_merges(Encoder *self)
{
    uint32_t byte_ids[256], n = self->lists.n_merges;
    if (read_byte_ids(self, byte_ids) < 0)
        return -1;
    struct merge *found = PyMem_New(struct merge, (Py_ssize_t)n + 1);
    if (!found) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct id_pair pair = self->lists.merges[i];
        found[i] = (struct merge){pair.left, pair.right, 0};
        if (find_joined(self, i ? found[i - 1].joined + 1 : 0, &found[i]) < 0) {
            PyMem_Free(found);
            return -1;
        }
    }
    int status = vocabulary_load(&self->vocabulary, self->tokens.n_ids, byte_ids, found, n,
                                 self->tokens.seed);
    PyMem_Free(found);
    if (status < 0)
        PyErr_NoMemory();
    return status;
}

static int read_largest_of(PyObject *dict, uint32_t *n_ids)
{
    int status;
    LOCKED(dict, status = read_largest(dict, n_ids));
    return status;
}

static int read_tokens_of(Encoder *self, PyObject *dict)
{
    int status;
    LOCKED(dict, status = read_tokens(self, dict));
    return status;
}

/* Make room for the tokens of a dict, or of another encoder, and added ones. */
static int open_tokens(Encoder *self, PyObject *vocab, const Encoder *other, PyObject *added,
                       uint64_t seed)
{
    uint32_t n_ids = other ? other->tokens.n_ids : 0;
    Py_ssize_t n = other ? (Py_ssize_t)other->lists.n_vocab : PyDict_GET_SIZE(vocab);
    if ((!other && read_largest_of(vocab, &n_ids) < 0) ||
        (added && read_largest_of(added, &n_ids) < 0))
        return -1;
    /* Each id is listed once, so room for n_ids is enough. */
    n += added ? PyDict_GET_SIZE(added) : 0;
    self->lists.ids = PyMem_New(uint32_t, (n > (Py_ssize_t)n_ids ? n : (Py_ssize_t)n_ids) + 1);
    if (self->lists.ids && tokens_open(&self->tokens, n_ids, seed) == 0)
        return 0;
    PyErr_NoMemory();
    return -1;
}

/* Read a vocabulary, a dict, and its merges, a tuple; or take both from another encoder. */
static int load(Encoder *self, PyObject *vocab, PyObject *merges, const Encoder *other,
                PyObject *added, int ignore_merges, uint64_t seed)
{
    if (open_tokens(self, vocab, other, added, seed) < 0 ||
        (other ? copy_tokens(self, other) : read_tokens_of(self, vocab)) < 0)
        return -1;
    if (tokens_index(&self->tokens) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (list_merges(self, merges, other) < 0 || load_merges(self) < 0)
        return -1;
    if (ignore_merges && vocabulary_set_whole(&self->vocabulary, &self->tokens) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    bool shares_ids = self->lists.shares_ids;
    self->lists.n_vocab = self->lists.n_ids;
    if (added && read_tokens_of(self, added) < 0)
        return -1;
    self->lists.shares_ids = shares_ids; /* added tokens may */
    if (tokens_fill_slots(&self->tokens) == 0)
        return 0;
    PyErr_NoMemory();
    return -1;
}

/* -- Sharing --------------------------------------------------------------------------------- */

/* Whether these are all the tokens that an encoder has in addition to its vocabulary, in the same
 * order.  The order matters: if several have one id, the first counts. */
static bool has_added(const Encoder *self, PyObject *added)
{
    PyObject *key, *value;
    const uint32_t *next = self->lists.ids + self->lists.n_vocab,
                   *end = self->lists.ids + self->lists.n_ids;
    for (Py_ssize_t at = 0; added && PyDict_Next(added, &at, &key, &value);) {
        uint32_t id = read_id(value);
        if (id == NO_TOKEN) { /* making the exception may have run code that changes the dict */
            PyErr_Clear();
            return false;
        }
        if (!PyBytes_Check(key) || !tokens_have(&self->tokens, id))
            return false;
        struct token token = self->tokens.by_id[id];
        if (next < end && *next == id && token.length == (size_t)PyBytes_GET_SIZE(key) &&
            memcmp(self->tokens.bytes + token.at, PyBytes_AS_STRING(key), token.length) == 0) {
            next++;
            continue;
        }
        for (const uint32_t *later = next; later < end; later++)
            if (*later == id)
                return false;
    }
    return next == end;
}

/* Use the memory of another encoder, if nothing in it would be different. */
static bool share(Encoder *self, Encoder *other, PyObject *added, int ignore_merges)
{
    bool same = false;
    if (added)
        LOCKED(added, same = has_added(other, added));
    else
        same = has_added(other, NULL);
    if (!same || (other->vocabulary.whole != NULL) != ignore_merges)
        return false;
    self->tokens = other->tokens;
    self->vocabulary = other->vocabulary;
    if (self->vocabulary.whole)
        self->vocabulary.whole = &self->tokens;
    self->lists = other->lists;
    self->owner = Py_NewRef(other->owner ? other->owner : (PyObject *)other);
    return true;
}

/* Decide how to encode, once everything is loaded. */
static void prepare(Encoder *self, bool use_avx2)
{
    self->vocabulary.use_avx2 = use_avx2;
    self->vocabulary.superwords = NULL; /* another encoder's, which may be freed before this one */
    if (!self->cutter.cuts_safely)      /* if it does, pre-tokens are short */
        self->superwords = superwords_new(&self->vocabulary, &self->tokens);
    self->vocabulary.superwords = self->superwords;
}

PyDoc_STRVAR(encoder_doc,
             "Encoder(vocab, merges, pattern, ignore_merges=False, added=None, normalizer=None,\n"
             "        portable=False, seed=None)\n--\n\n"
             "Turns text into ids and ids into bytes.\n\n"
             "Args:\n"
             "    vocab: token -> id, dict of bytes; with all 256 bytes.  Or an Encoder, whose\n"
             "        vocabulary and merges are used.\n"
             "    merges: list of (left, right) ids, in rank order.\n"
             "    pattern: the name of a built-in split pattern, or an automaton; None if only\n"
             "        encode_pretokens is used.\n"
             "    ignore_merges: a pre-token that is a token needs no merges.\n"
             "    added: content -> id of added tokens, dict of bytes; for decoding.\n"
             "    normalizer: its name; encode_plain takes text that it surely doesn't change:\n"
             "        ASCII; with \"NFC\", most text.\n"
             "    portable: don't use this processor's special instructions.\n"
             "    seed: a secret number; by default one that belongs to this process.\n\n"
             "Raises:\n"
             "    OverflowError: an id, or the number of merges, is too large for this engine.");

static PyObject *encoder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"vocab", "merges",     "pattern",  "ignore_merges",
                            "added", "normalizer", "portable", "seed", NULL};
    PyObject *vocab, *merges, *pattern, *added = NULL, *given_seed = NULL;
    const char *normalizer = NULL;
    int ignore_merges = 0, portable = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|pO!zpO!:Encoder", names, &vocab, &merges,
                                     &pattern, &ignore_merges, &PyDict_Type, &added, &normalizer,
                                     &portable, &PyLong_Type, &given_seed))
        return NULL;
    uint64_t seed = given_seed ? PyLong_AsUnsignedLongLongMask(given_seed) : 0;
    if (PyErr_Occurred() || (!given_seed && get_seed(&seed) < 0))
        return NULL;
    if (!PyDict_Check(vocab) && !is_encoder(vocab)) {
        PyErr_Format(PyExc_TypeError, "vocab must be a dict or an Encoder, got %.100s",
                     Py_TYPE(vocab)->tp_name);
        return NULL;
    }
    struct cutter cutter;
    if (cutter_of(pattern, portable, &cutter) < 0)
        return NULL;
    Encoder *self = new_encoder(type);
    if (!self)
        return NULL;
    self->pattern = Py_NewRef(pattern);
    self->cutter = cutter;
    self->ascii_only = normalizer != NULL;
    self->or_nfc = normalizer && strcmp(normalizer, "NFC") == 0;
    Encoder *other = is_encoder(vocab) ? (Encoder *)vocab : NULL;
    PyObject *items = items_of_list(merges, "merges");
    bool ready = items && other && share(self, other, added, ignore_merges);
    if (!items || (!ready && load(self, vocab, items, other, added, ignore_merges, seed) < 0) ||
        open_ints(self) < 0)
        Py_CLEAR(self);
    else
        prepare(self, has_avx2() && !portable);
    Py_XDECREF(items);
    return (PyObject *)self;
}

/* -- Encoding -------------------------------------------------------------------------------- */

int check_scanner(const Encoder *self)
{
    if (can_cut(self->cutter))
        return 0;
    PyErr_SetString(PyExc_TypeError, "no scanner for this pattern: use encode_pretokens");
    return -1;
}

int encode_into(Encoder *self, struct worker *worker, PyObject *string, bool keep)
{
    size_t size;
    const uint8_t *text = utf8_of(worker, string, &size);
    if (!text || check_scanner(self) < 0)
        return -1;
    /* NOTE: the caller has a reference to the string, even if everyone else drops theirs. */
    int status;
    if (size < LONG_TEXT) {
        status = encode_text(&self->vocabulary, worker, self->cutter, text, size, keep);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = encode_text(&self->vocabulary, worker, self->cutter, text, size, keep);
        Py_END_ALLOW_THREADS
    }
    if (status < 0)
        PyErr_NoMemory();
    return status;
}

/* Which ints are taken is at random, so each is fetched well before its references are counted, and
 * the pointer to it before that. */
size_t fill_ints(const Encoder *self, const uint32_t *ids, size_t n, PyObject **items)
{
    _Atomic(PyObject *) *ints = self->ints; /* not read again after each atomic load */
    size_t ahead = n < AHEAD ? n : AHEAD;
    for (size_t i = 0; i < n + ahead; i++) {
#if defined(__GNUC__)
        if (i + ahead < n)
            __builtin_prefetch((const void *)&ints[ids[i + ahead]]);
        if (i < n)
            __builtin_prefetch(atomic_load_explicit(&ints[ids[i]], memory_order_relaxed), 1);
#endif
        if (i < ahead)
            continue;
        PyObject *id = atomic_load_explicit(&ints[ids[i - ahead]], memory_order_acquire);
        if (id)
            Py_INCREF(id);
        else if (!(id = make_int(self, ids[i - ahead])))
            return i - ahead;
        items[i - ahead] = id;
    }
    return n;
}

PyObject *list_of(const Encoder *self, const uint32_t *ids, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    if (list && fill_ints(self, ids, n, ((PyListObject *)list)->ob_item) < n)
        Py_CLEAR(list);
    return list;
}

PyObject *buffer_of(const Encoder *Py_UNUSED(self), const uint32_t *ids, size_t n)
{
    // Made empty first: where memory fails, CPython frees one of another size half initialized.
    PyObject *buffer = PyByteArray_FromStringAndSize(NULL, 0);
    if (buffer && PyByteArray_Resize(buffer, (Py_ssize_t)(n * sizeof *ids)) < 0)
        Py_CLEAR(buffer);
    if (buffer && n > 0)
        memcpy(PyByteArray_AS_STRING(buffer), ids, n * sizeof *ids);
    return buffer;
}

PyDoc_STRVAR(encode_doc, "encode(text, /)\n--\n\nReturn the ids of a text, a list.");

static PyObject *encoder_encode(Encoder *self, PyObject *string)
{
    release_left_behind();
    struct worker *worker = need_worker(self);
    if (!worker)
        return NULL;
    PyObject *list = NULL;
    if (encode_into(self, worker, string, true) == 0)
        list = list_of(self, worker->ids, worker->n_ids);
    put_back(self, worker);
    return list;
}

PyDoc_STRVAR(encode_to_buffer_doc,
             "encode_to_buffer(text, /)\n--\n\n"
             "Return the ids of a text, 32-bit numbers in a bytearray.");

static PyObject *encoder_encode_to_buffer(Encoder *self, PyObject *string)
{
    struct worker *worker = need_worker(self);
    if (!worker)
        return NULL;
    PyObject *buffer = NULL;
    if (encode_into(self, worker, string, true) == 0)
        buffer = buffer_of(self, worker->ids, worker->n_ids);
    put_back(self, worker);
    return buffer;
}

/* Which bytes are adjacent in a token. */
static void find_meetings(const struct tokens *tokens, uint64_t meet[MEETINGS])
{
    memset(meet, 0, MEETINGS * sizeof *meet);
    for (uint32_t id = 0; id < tokens->n_ids; id++) {
        if (!tokens_have(tokens, id))
            continue;
        note_meetings(meet, tokens->bytes + tokens->by_id[id].at, tokens->by_id[id].length);
    }
}

PyDoc_STRVAR(encode_apart_doc,
             "encode_apart(texts, between, /)\n--\n\n"
             "Return the ids of texts, a list of str, as encode_to_buffer does, and a number\n"
             "after the ids of each pre-token.  Not for encoders with ignore_merges.");

static PyObject *encoder_encode_apart(Encoder *self, PyObject *args)
{
    PyObject *list, *texts, *buffer = NULL;
    uint64_t meet[MEETINGS];
    unsigned int between;
    if (!PyArg_ParseTuple(args, "OI:encode_apart", &list, &between) || check_scanner(self) < 0)
        return NULL;
    if (self->vocabulary.whole) {
        PyErr_SetString(PyExc_ValueError, "encode_apart() can't be used with ignore_merges");
        return NULL;
    }
    if (!(texts = items_of_list(list, "texts")))
        return NULL;
    struct worker *worker = need_worker(self);
    int status = worker ? 0 : -1;
    find_meetings(&self->tokens, meet);
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(texts); i++) {
        size_t size;
        const uint8_t *text = utf8_of(worker, PyTuple_GET_ITEM(texts, i), &size);
        if (!text)
            status = -1;
        else if (encode_apart(&self->vocabulary, worker, self->cutter, text, size, meet,
                              between) < 0) {
            PyErr_NoMemory();
            status = -1;
        }
    }
    if (status == 0)
        buffer = buffer_of(self, worker->ids, worker->n_ids);
    if (worker)
        put_back(self, worker);
    Py_DECREF(texts);
    return buffer;
}

bool is_plain_but_for_nfc(const Encoder *self, PyObject *object)
{
    if (!can_cut(self->cutter) || !PyUnicode_Check(object))
        return false;
    if (check_string(object) < 0) {
        PyErr_Clear();
        return false;
    }
    return !self->ascii_only || self->or_nfc || PyUnicode_IS_ASCII(object);
}

bool is_plain(const Encoder *self, PyObject *object)
{
    if (!is_plain_but_for_nfc(self, object))
        return false;
    return !self->or_nfc || PyUnicode_IS_ASCII(object) || is_surely_nfc(object);
}

/* The ids of a text, or their number; None where it can't be encoded. */
static inline PyObject *ids_or_none(PyObject *ids)
{
    if (ids || !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return ids;
    PyErr_Clear();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(encode_plain_doc,
             "encode_plain(text, /)\n--\n\n"
             "Do what encode does, if this text needs nothing else.\n\n"
             "Returns:\n"
             "    The ids; None if the text isn't a str, `normalizer` might change it, or it can't\n"
             "    be encoded.");

static PyObject *encoder_encode_plain(Encoder *self, PyObject *string)
{
    if (!is_plain(self, string))
        Py_RETURN_NONE;
    return ids_or_none(encoder_encode(self, string));
}

PyDoc_STRVAR(encode_plain_to_buffer_doc,
             "encode_plain_to_buffer(text, /)\n--\n\n"
             "Do what encode_to_buffer does, or return None, as encode_plain does.");

static PyObject *encoder_encode_plain_to_buffer(Encoder *self, PyObject *string)
{
    if (!is_plain(self, string))
        Py_RETURN_NONE;
    return ids_or_none(encoder_encode_to_buffer(self, string));
}

PyDoc_STRVAR(count_doc, "count(text, /)\n--\n\nCount the ids that encode would give.");

static PyObject *encoder_count(Encoder *self, PyObject *string)
{
    struct worker *worker = need_worker(self);
    if (!worker)
        return NULL;
    PyObject *count = NULL;
    if (encode_into(self, worker, string, false) == 0)
        count = PyLong_FromSize_t(worker->n_ids);
    put_back(self, worker);
    return count;
}

PyDoc_STRVAR(count_plain_doc,
             "count_plain(text, /)\n--\n\n"
             "Count the ids that encode_plain would give, or return None, as it does.");

static PyObject *encoder_count_plain(Encoder *self, PyObject *string)
{
    if (!is_plain(self, string))
        Py_RETURN_NONE;
    return ids_or_none(encoder_count(self, string));
}

/* -- Pre-tokens ------------------------------------------------------------------------------ */

PyObject *tuple_of_list(PyObject *list)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyList_AsTuple(list);
#else
    /* NOTE: up to 3.11, making a tuple may collect garbage, whose finalizers may change the list.
     * PyList_AsTuple, and PySequence_Tuple with it, would go on with memory that is gone. */
    for (;;) {
        Py_ssize_t n = PyList_GET_SIZE(list);
        PyObject *tuple = PyTuple_New(n);
        if (!tuple)
            return NULL;
        if (PyList_GET_SIZE(list) == n) {
            for (Py_ssize_t i = 0; i < n; i++)
                PyTuple_SET_ITEM(tuple, i, Py_NewRef(PyList_GET_ITEM(list, i)));
            return tuple;
        }
        Py_DECREF(tuple);
    }
#endif
}

PyObject *items_of_list(PyObject *object, const char *name)
{
    if (PyList_Check(object))
        return tuple_of_list(object);
    PyErr_Format(PyExc_TypeError, "%s must be a list, got %.100s", name, Py_TYPE(object)->tp_name);
    return NULL;
}

Py_ssize_t gather(struct worker *worker, PyObject *items, Py_ssize_t first, size_t *count)
{
    size_t room = 0;
    Py_ssize_t end = first;
    for (; end < PyTuple_GET_SIZE(items) && end - first < CHUNK; end++) {
        PyObject *string = PyTuple_GET_ITEM(items, end);
        if (check_string(string) < 0)
            return -1;
        size_t length = (size_t)PyUnicode_GET_LENGTH(string);
        if (length > (SIZE_MAX - room) / 4 - 1) { /* one string many times, say */
            PyErr_NoMemory();
            return -1;
        }
        room += 4 * length;
    }
    if (worker_reserve_text(worker, room + 4) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    uint8_t *out = worker->text;
    *count = 0;
    for (Py_ssize_t i = first; i < end; i++) {
        PyObject *string = PyTuple_GET_ITEM(items, i);
        out = write_utf8(string, out, worker->use_avx2);
        if (!out) {
            raise_surrogate(string);
            return -1;
        }
        if (PyUnicode_GET_LENGTH(string))
            worker->ends[(*count)++] = (size_t)(out - worker->text);
    }
    return end;
}

/* Encode pre-tokens into worker->ids, or count their ids in worker->n_ids. */
static int encode_items(Encoder *self, struct worker *worker, PyObject *items, bool keep)
{
    size_t total = 0;
    for (Py_ssize_t done = 0; done < PyTuple_GET_SIZE(items);) {
        size_t count;
        done = gather(worker, items, done, &count);
        if (done < 0)
            return -1;
        size_t size = count ? worker->ends[count - 1] : 0;
        const struct vocabulary *v = &self->vocabulary;
        int status = keep ? encode_pieces(v, worker, worker->text, size, 0, count)
                          : count_pieces(v, worker, worker->text, size, 0, count, &total);
        if (status < 0) {
            PyErr_NoMemory();
            return -1;
        }
    }
    if (!keep)
        worker->n_ids = total;
    return 0;
}

static PyObject *with_pretokens(Encoder *self, PyObject *pretokens, bool keep)
{
    PyObject *result = NULL, *items = items_of_list(pretokens, "pretokens");
    if (!items)
        return NULL;
    struct worker *worker = need_worker(self);
    if (worker && encode_items(self, worker, items, keep) == 0)
        result = keep ? list_of(self, worker->ids, worker->n_ids)
                      : PyLong_FromSize_t(worker->n_ids);
    if (worker)
        put_back(self, worker);
    Py_DECREF(items);
    return result;
}

PyDoc_STRVAR(encode_pretokens_doc,
             "encode_pretokens(pretokens, /)\n--\n\n"
             "Return the ids of a text that is already cut, a list of str.");

static PyObject *encoder_encode_pretokens(Encoder *self, PyObject *pretokens)
{
    return with_pretokens(self, pretokens, true);
}

PyDoc_STRVAR(count_pieces_doc,
             "count_pieces(pretokens, /)\n--\n\n"
             "Count the ids that encode_pretokens would give.");

static PyObject *encoder_count_pieces(Encoder *self, PyObject *pretokens)
{
    return with_pretokens(self, pretokens, false);
}

/* -- The cache ------------------------------------------------------------------------------- */

PyDoc_STRVAR(cache_info_doc,
             "cache_info()\n--\n\nReturn (look-ups, misses, pre-tokens held).");

static PyObject *encoder_cache_info(Encoder *self, PyObject *Py_UNUSED(ignored))
{
    struct worker *taken[SPARE_WORKERS];
    uint64_t lookups = 0, misses = 0, size = 0;
    for (int i = 0; i < SPARE_WORKERS; i++) {
        taken[i] = atomic_exchange(&self->spare[i], NULL);
        if (taken[i]) {
            lookups += taken[i]->cache.lookups;
            misses += taken[i]->cache.misses;
            size += taken[i]->cache.short_entries + taken[i]->cache.long_entries;
        }
    }
    for (int i = 0; i < SPARE_WORKERS; i++)
        if (taken[i])
            put_back(self, taken[i]);
    return Py_BuildValue("KKK", (unsigned long long)lookups, (unsigned long long)misses,
                         (unsigned long long)size);
}

PyDoc_STRVAR(clear_cache_doc, "clear_cache()\n--\n\nForget all pre-tokens.");

static PyObject *encoder_clear_cache(Encoder *self, PyObject *Py_UNUSED(ignored))
{
    release_left_behind();
    for (int i = 0; i < SPARE_WORKERS; i++)
        worker_free(atomic_exchange(&self->spare[i], NULL));
    free_spans(atomic_exchange(&self->spans, NULL));
    Py_RETURN_NONE;
}

PyDoc_STRVAR(load_probes_doc,
             "load_probes()\n--\n\n"
             "Return how many entries of hash tables were looked at to fill them.");

static PyObject *encoder_load_probes(Encoder *self, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromUnsignedLongLong(self->tokens.probes + self->vocabulary.probes);
}

static PyMethodDef encoder_methods[] = {
    {"encode", (PyCFunction)encoder_encode, METH_O, encode_doc},
    {"encode_plain", (PyCFunction)encoder_encode_plain, METH_O, encode_plain_doc},
    {"encode_around", (PyCFunction)(void (*)(void))encoder_encode_around, METH_FASTCALL,
     encode_around_doc},
    {"encode_around_to_buffer", (PyCFunction)(void (*)(void))encoder_encode_around_to_buffer,
     METH_FASTCALL, encode_around_to_buffer_doc},
    {"begin", (PyCFunction)(void (*)(void))encoder_begin, METH_FASTCALL, begin_doc},
    {"encode_segments", (PyCFunction)(void (*)(void))encoder_encode_segments, METH_FASTCALL,
     encode_segments_doc},
    {"encode_to_buffer", (PyCFunction)encoder_encode_to_buffer, METH_O, encode_to_buffer_doc},
    {"encode_plain_to_buffer", (PyCFunction)encoder_encode_plain_to_buffer, METH_O,
     encode_plain_to_buffer_doc},
    {"encode_apart", (PyCFunction)encoder_encode_apart, METH_VARARGS, encode_apart_doc},
    {"encode_batch", (PyCFunction)encoder_encode_batch, METH_VARARGS, encode_batch_doc},
    {"encode_batch_recorded", (PyCFunction)encoder_encode_batch_recorded, METH_VARARGS,
     encode_batch_recorded_doc},
    {"encode_batch_to_buffers", (PyCFunction)encoder_encode_batch_to_buffers, METH_VARARGS,
     encode_batch_to_buffers_doc},
    {"encode_joined", (PyCFunction)encoder_encode_joined, METH_VARARGS, encode_joined_doc},
    {"encode_joined_to_buffer", (PyCFunction)encoder_encode_joined_to_buffer, METH_VARARGS,
     encode_joined_to_buffer_doc},
    {"encode_pretokens", (PyCFunction)encoder_encode_pretokens, METH_O, encode_pretokens_doc},
    {"encode_dropping", (PyCFunction)encoder_encode_dropping, METH_VARARGS, encode_dropping_doc},
    {"count", (PyCFunction)encoder_count, METH_O, count_doc},
    {"count_plain", (PyCFunction)encoder_count_plain, METH_O, count_plain_doc},
    {"count_around", (PyCFunction)(void (*)(void))encoder_count_around, METH_FASTCALL,
     count_around_doc},
    {"count_pieces", (PyCFunction)encoder_count_pieces, METH_O, count_pieces_doc},
    {"offsets", (PyCFunction)encoder_offsets, METH_VARARGS, offsets_doc},
    {"decode", (PyCFunction)encoder_decode, METH_O, decode_doc},
    {"decode_to_str", (PyCFunction)(void (*)(void))encoder_decode_to_str, METH_FASTCALL,
     decode_to_str_doc},
    {"without", (PyCFunction)encoder_without, METH_VARARGS, without_doc},
    {"decode_rows", (PyCFunction)encoder_decode_rows, METH_VARARGS, decode_rows_doc},
    {"token", (PyCFunction)encoder_token, METH_O, token_doc},
    {"id_of", (PyCFunction)encoder_id_of, METH_O, id_of_doc},
    {"listed", (PyCFunction)encoder_listed, METH_O, listed_doc},
    {"merges", (PyCFunction)encoder_merges, METH_VARARGS, merges_doc},
    {"image", (PyCFunction)encoder_image, METH_O, image_doc},
    {"from_image", (PyCFunction)encoder_from_image, METH_O | METH_CLASS, from_image_doc},
    {"cache_info", (PyCFunction)encoder_cache_info, METH_NOARGS, cache_info_doc},
    {"load_probes", (PyCFunction)encoder_load_probes, METH_NOARGS, load_probes_doc},
    {"clear_cache", (PyCFunction)encoder_clear_cache, METH_NOARGS, clear_cache_doc},
    {NULL, NULL, 0, NULL},
};

static PyObject *get_largest_id(Encoder *self, void *Py_UNUSED(closure))
{
    uint32_t n_ids = self->tokens.n_ids;
    while (n_ids > 0 && !tokens_have(&self->tokens, n_ids - 1))
        n_ids--;
    return PyLong_FromLong((long)n_ids - 1);
}

static PyObject *get_sizes(Encoder *self, void *Py_UNUSED(closure))
{
    return Py_BuildValue("III", self->lists.n_vocab, self->lists.n_ids, self->lists.n_merges);
}

static PyObject *get_shares_ids(Encoder *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(self->lists.shares_ids);
}

static PyObject *get_cuts_safely(Encoder *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(self->cutter.cuts_safely);
}

static PyGetSetDef encoder_getters[] = {
    {"cuts_safely", (getter)get_cuts_safely, NULL,
     "Whether the pattern always cuts where a letter or number meets a space or sign.", NULL},
    {"largest_id", (getter)get_largest_id, NULL, "The largest id that has a token.", NULL},
    {"sizes", (getter)get_sizes, NULL,
     "How many tokens the vocabulary has, how many with added ones, and how many merges.", NULL},
    {"shares_ids", (getter)get_shares_ids, NULL,
     "Whether two tokens of the vocabulary have one id, so that `listed` lacks one.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot encoder_slots[] = {
    {Py_tp_doc, (void *)encoder_doc},
    {Py_tp_new, (void *)encoder_new},
    {Py_tp_dealloc, (void *)encoder_dealloc},
    {Py_tp_methods, encoder_methods},
    {Py_tp_getset, encoder_getters},
    {0, NULL},
};

PyType_Spec encoder_spec = {
    .name = "_bpe_tokenizer.native.Encoder",
    .basicsize = sizeof(Encoder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = encoder_slots,
};
