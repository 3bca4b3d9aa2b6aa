/* Python's side of training: the type `PretokenCounter` and the function `learn_merges`.
 *
 * An OverflowError says that something is too large for this engine, not that it is wrong: the
 * Python engine takes it. */

#include "binding/training.h"

#include <pythread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/processor.h"
#include "base/threads.h"
#include "binding/scan.h"
#include "binding/text.h"
#include "train/count.h"
#include "train/learn.h"

enum {
    SHARE = 1 << 16,     /* characters that a thread takes at once, or one text that is longer */
    KEPT_TEXT = 1 << 23, /* bytes of UTF-8 for which a counter keeps its room */
    SLICE = 1 << 21,     /* symbols looked at before Python is asked whether to go on */
};

/* -- Counting on several threads ------------------------------------------------------------- */

/* What threads that count share.  They have no interpreter's lock.  A string never changes, and the
 * tuple keeps each alive, so what is read of them needs none. */
struct counting {
    PyObject *texts;      /* a tuple of str */
    struct cutter cutter; /* if it can't cut, each text is a pre-token */
    bool use_avx2;        /* what the processor can do, and is wanted */
    uint64_t seed;
    struct counter **counters; /* one for each thread; NULL until it is needed */
    atomic_size_t next;        /* the first text that nobody has taken */
    atomic_size_t refused;     /* a text with a surrogate, or SIZE_MAX */
    atomic_bool no_memory;
};

/* Take texts from `first` up to the one before the result; none if they are the same. */
static size_t take_texts(struct counting *counting, size_t *first)
{
    size_t n = (size_t)PyTuple_GET_SIZE(counting->texts), end;
    *first = atomic_load(&counting->next);
    do {
        size_t size = 0;
        for (end = *first; end < n && size < SHARE; end++)
            size += (size_t)PyUnicode_GET_LENGTH(PyTuple_GET_ITEM(counting->texts, end));
    } while (end != *first && !atomic_compare_exchange_weak(&counting->next, first, end));
    return end;
}

static void stop_counting(struct counting *counting)
{
    atomic_store(&counting->next, (size_t)PyTuple_GET_SIZE(counting->texts));
}

/* The UTF-8 of a string.  NULL if memory is short, or, with *size 1, if there is a surrogate. */
static const uint8_t *counter_utf8(struct counter *counter, PyObject *string, bool use_avx2,
                                   size_t *size)
{
    size_t length = (size_t)PyUnicode_GET_LENGTH(string), kind = PyUnicode_KIND(string);
    *size = length;
    if (PyUnicode_IS_ASCII(string))
        return PyUnicode_DATA(string);
    *size = 0;
    /* Latin-1 takes 2 bytes a character at most, UCS-2 3, UCS-4 4; and four are written at once. */
    if (counter_reserve_text(counter, length * (kind == 4 ? 4 : kind + 1) + 4) < 0)
        return NULL;
    uint8_t *end = write_utf8(string, counter->text, use_avx2);
    *size = end ? (size_t)(end - counter->text) : 1;
    return end ? counter->text : NULL;
}

/* Returns false, and stops all threads, if the text is refused or memory is short. */
static bool count_string(struct counting *counting, struct counter *counter, size_t index)
{
    size_t size;
    PyObject *string = PyTuple_GET_ITEM(counting->texts, index);
    const uint8_t *text = counter_utf8(counter, string, counting->use_avx2, &size);
    if (!text && size) {
        atomic_store(&counting->refused, index);
    } else if (!text || (can_cut(counting->cutter)
                             ? count_text(counter, counting->cutter, text, size)
                             : count_whole(counter, text, size)) < 0) {
        atomic_store(&counting->no_memory, true);
    } else {
        return true;
    }
    stop_counting(counting);
    return false;
}

static void count_share(void *context, unsigned index)
{
    struct counting *counting = context;
    struct counter *counter = counting->counters[index];
    if (!counter)
        counter = counting->counters[index] = counter_new(counting->seed);
    /* NOTE: one that found no memory for its room before must find it now, or not count. */
    if (!counter || counter_finish(counter) < 0) {
        atomic_store(&counting->no_memory, true);
        return;
    }
    bool goes_on = true;
    size_t first, end;
    while (goes_on && (end = take_texts(counting, &first)) != first)
        for (; goes_on && first < end; first++)
            goes_on = count_string(counting, counter, first);
    if (counter_finish(counter) < 0)
        atomic_store(&counting->no_memory, true);
    counter_trim(counter, KEPT_TEXT);
}

/* -- The counter object ---------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *pattern; /* what the cutter was made from, and may point into */
    struct cutter cutter;
    bool use_avx2;
    uint64_t seed;

    /* Held by the one thread that uses the counters.
     * INVARIANT: while it is held, no Python code runs in that thread, so it never waits for
     * itself; and who waits for it has no interpreter's lock. */
    PyThread_type_lock lock;
    struct counter *counters[MAX_THREADS];
} PretokenCounter;

static void enter(PretokenCounter *self)
{
    if (PyThread_acquire_lock(self->lock, NOWAIT_LOCK))
        return;
    Py_BEGIN_ALLOW_THREADS;
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    Py_END_ALLOW_THREADS;
}

static void leave(PretokenCounter *self)
{
    PyThread_release_lock(self->lock);
}

static void drop_counters(PretokenCounter *self, int first)
{
    for (int i = first; i < MAX_THREADS; i++) {
        counter_free(self->counters[i]);
        self->counters[i] = NULL;
    }
}

static void counter_dealloc(PretokenCounter *self)
{
    PyTypeObject *type = Py_TYPE(self);
    drop_counters(self, 0);
    if (self->lock)
        PyThread_free_lock(self->lock);
    Py_XDECREF(self->pattern);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

PyDoc_STRVAR(counter_doc,
             "PretokenCounter(pattern=None, portable=False)\n--\n\n"
             "Counts pre-tokens.\n\n"
             "Threads may share one; then one counts after the other.  After an error, what was\n"
             "counted is only a part.\n\n"
             "Args:\n"
             "    pattern: the name of a built-in split pattern, or an automaton; None if text is\n"
             "        given to count_pretokens only.\n"
             "    portable: do without special instructions of this processor.");

static PyObject *counter_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"pattern", "portable", NULL};
    PyObject *pattern = Py_None;
    int portable = 0;
    struct cutter cutter;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Op:PretokenCounter", names, &pattern,
                                     &portable))
        return NULL;
    if (cutter_of(pattern, portable, &cutter) < 0)
        return NULL;
    PretokenCounter *self = (PretokenCounter *)type->tp_alloc(type, 0); /* all zero */
    if (!self)
        return NULL;
    self->pattern = Py_NewRef(pattern);
    self->cutter = cutter;
    self->use_avx2 = has_avx2() && !portable;
    self->lock = PyThread_allocate_lock();
    if (!self->lock || get_seed(&self->seed) < 0) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* -- Counting -------------------------------------------------------------------------------- */

/* Check that all are strings, ready to be read; sum up their lengths. */
static int check_strings(PyObject *texts, size_t *size)
{
    *size = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(texts); i++) {
        if (check_string(PyTuple_GET_ITEM(texts, i)) < 0)
            return -1;
        *size += (size_t)PyUnicode_GET_LENGTH(PyTuple_GET_ITEM(texts, i));
    }
    return 0;
}

/* Count a tuple of strings.  Returns 0, or -1 and an exception. */
static int count_tuple(PretokenCounter *self, PyObject *texts, struct cutter cutter,
                       int threads)
{
    size_t size;
    if (check_strings(texts, &size) < 0)
        return -1;
    size_t most = size / SHARE + 1; /* threads that have something to do */
    unsigned n = (unsigned)threads < MAX_THREADS ? (unsigned)threads : MAX_THREADS;
    n = n < most ? n : (unsigned)most;
    struct counting counting = {.texts = texts,
                                .cutter = cutter,
                                .use_avx2 = self->use_avx2,
                                .seed = self->seed,
                                .counters = self->counters};
    atomic_init(&counting.next, 0);
    atomic_init(&counting.refused, SIZE_MAX);
    atomic_init(&counting.no_memory, false);
    enter(self);
    Py_BEGIN_ALLOW_THREADS;
    run_in_threads(n, count_share, &counting);
    Py_END_ALLOW_THREADS;
    leave(self);
    size_t refused = atomic_load(&counting.refused);
    if (refused != SIZE_MAX) {
        raise_surrogate(PyTuple_GET_ITEM(texts, (Py_ssize_t)refused));
        return -1;
    }
    if (atomic_load(&counting.no_memory)) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static PyObject *count_list(PretokenCounter *self, PyObject *args, struct cutter cutter)
{
    PyObject *list;
    int threads = 1;
    if (!PyArg_ParseTuple(args, "O!|i", &PyList_Type, &list, &threads))
        return NULL;
    if (threads < 1) {
        PyErr_Format(PyExc_ValueError, "threads must be at least 1, got %d", threads);
        return NULL;
    }
    PyObject *texts = PyList_AsTuple(list); /* the list may change; what it held stays */
    if (!texts)
        return NULL;
    int status = count_tuple(self, texts, cutter, threads);
    Py_DECREF(texts);
    if (status < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(count_doc,
             "count(texts, threads=1, /)\n--\n\n"
             "Count the pre-tokens of texts, a list of str, each cut by itself.");

static PyObject *counter_count(PretokenCounter *self, PyObject *args)
{
    if (!can_cut(self->cutter)) {
        PyErr_SetString(PyExc_TypeError, "no scanner for this pattern: use count_pretokens");
        return NULL;
    }
    return count_list(self, args, self->cutter);
}

PyDoc_STRVAR(count_pretokens_doc,
             "count_pretokens(pretokens, threads=1, /)\n--\n\n"
             "Count text that is cut already, a list of str.  Empty ones do not count.");

static PyObject *counter_count_pretokens(PretokenCounter *self, PyObject *args)
{
    return count_list(self, args, (struct cutter){0});
}

/* -- The sum --------------------------------------------------------------------------------- */

/* Add what all threads counted into the first counter, and enter.  Returns 0, or -1 and an
 * exception; then it has left. */
static int enter_and_add(PretokenCounter *self)
{
    int status = 0;
    enter(self);
    Py_BEGIN_ALLOW_THREADS;
    if (!self->counters[0] && !(self->counters[0] = counter_new(self->seed)))
        status = -1;
    for (int i = 1; i < MAX_THREADS && status == 0; i++) {
        if (!self->counters[i])
            continue;
        status = byte_map_add(&self->counters[0]->map, &self->counters[i]->map);
        counter_free(self->counters[i]);
        self->counters[i] = NULL;
    }
    /* What is counted next must have its room. */
    if (status == 0)
        status = counter_finish(self->counters[0]);
    Py_END_ALLOW_THREADS;
    if (status == 0)
        return 0;
    drop_counters(self, 0); /* one may be added in part */
    leave(self);
    PyErr_NoMemory();
    return -1;
}

static int add_item(PyObject *dict, const uint8_t *bytes, size_t length, uint64_t number)
{
    PyObject *key = PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)length);
    PyObject *value = key ? PyLong_FromUnsignedLongLong(number) : NULL;
    int status = value ? PyDict_SetItem(dict, key, value) : -1;
    Py_XDECREF(key);
    Py_XDECREF(value);
    return status;
}

/* Fill a dict that nobody else has: no Python code runs, as keys are bytes. */
static int add_longs(PyObject *dict, const struct byte_map *map)
{
    for (size_t i = 0; map->longs && i < (size_t)1 << map->long_bits; i++) {
        const struct long_item *item = &map->longs[i];
        if (item->length &&
            add_item(dict, map->bytes + item->at, item->length, item->number) < 0)
            return -1;
    }
    return 0;
}

static int add_shorts(PyObject *dict, const struct byte_map *map)
{
    uint8_t bytes[16];
    for (size_t i = 0; i < (size_t)1 << map->short_bits; i++) {
        const struct short_item *item = &map->shorts[i];
        if (item->key.high &&
            add_item(dict, bytes, short_bytes(item->key, bytes), item->number) < 0)
            return -1;
    }
    return 0;
}

static PyObject *make_dict(PretokenCounter *self, bool take)
{
    PyObject *dict = PyDict_New();
    if (!dict || enter_and_add(self) < 0) {
        Py_XDECREF(dict);
        return NULL;
    }
    struct byte_map *map = &self->counters[0]->map;
    int status = add_longs(dict, map);
    if (take)
        byte_map_drop_longs(map);
    if (status == 0)
        status = add_shorts(dict, map);
    if (take)
        drop_counters(self, 0);
    leave(self);
    if (status < 0)
        Py_CLEAR(dict);
    return dict;
}

PyDoc_STRVAR(to_dict_doc,
             "to_dict()\n--\n\nReturn all counts: pre-token -> count, a dict of bytes.");

static PyObject *counter_to_dict(PretokenCounter *self, PyObject *Py_UNUSED(ignored))
{
    return make_dict(self, false);
}

PyDoc_STRVAR(take_doc,
             "take()\n--\n\nReturn all counts as to_dict does, and forget them: this takes less\n"
             "memory.");

static PyObject *counter_take(PretokenCounter *self, PyObject *Py_UNUSED(ignored))
{
    return make_dict(self, true);
}

static Py_ssize_t counter_length(PretokenCounter *self)
{
    if (enter_and_add(self) < 0)
        return -1;
    size_t size = byte_map_size(&self->counters[0]->map);
    leave(self);
    return (Py_ssize_t)size;
}

static PyMethodDef counter_methods[] = {
    {"count", (PyCFunction)counter_count, METH_VARARGS, count_doc},
    {"count_pretokens", (PyCFunction)counter_count_pretokens, METH_VARARGS, count_pretokens_doc},
    {"to_dict", (PyCFunction)counter_to_dict, METH_NOARGS, to_dict_doc},
    {"take", (PyCFunction)counter_take, METH_NOARGS, take_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot counter_slots[] = {
    {Py_tp_doc, (void *)counter_doc},
    {Py_tp_new, (void *)counter_make},
    {Py_tp_dealloc, (void *)counter_dealloc},
    {Py_tp_methods, counter_methods},
    {Py_sq_length, (void *)counter_length},
    {0, NULL},
};

static PyType_Spec counter_spec = {
    .name = "_bpe_tokenizer.native.PretokenCounter",
    .basicsize = sizeof(PretokenCounter),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = counter_slots,
};

/* -- Learning: what is asked for ------------------------------------------------------------- */

struct question {
    PyObject *counts, *forbidden, *advance;
    const uint8_t *alphabet;
    long long n_tokens, min_frequency, limit;
};

/* Read an int; one that is too large or too small for a count is as good as the largest or smallest
 * count. */
static int read_number(PyObject *object, void *number)
{
    int overflow;
    if (!PyLong_Check(object)) {
        PyErr_Format(PyExc_TypeError, "an int is needed, not %.100s", Py_TYPE(object)->tp_name);
        return 0;
    }
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    *(long long *)number = overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN : value;
    return 1;
}

/* The limit of a token's length: none if it is None or 0. */
static int read_limit(PyObject *object, void *limit)
{
    long long value = 0;
    if (object != Py_None && !read_number(object, &value))
        return 0;
    *(long long *)limit = value ? value : INT64_MAX;
    return 1;
}

static int read_alphabet(PyObject *object, void *alphabet)
{
    bool seen[BASE_TOKENS] = {false};
    bool all = PyBytes_Check(object) && PyBytes_GET_SIZE(object) == BASE_TOKENS;
    const uint8_t *bytes = all ? (const uint8_t *)PyBytes_AS_STRING(object) : NULL;
    for (int i = 0; all && i < BASE_TOKENS; i++) {
        all = !seen[bytes[i]];
        seen[bytes[i]] = true;
    }
    if (!all) {
        PyErr_SetString(PyExc_ValueError, "alphabet must be all 256 bytes, each once");
        return 0;
    }
    *(const uint8_t **)alphabet = bytes;
    return 1;
}

static int read_question(PyObject *args, struct question *question)
{
    if (!PyArg_ParseTuple(args, "O!O&O&O&O&O!O:learn_merges", &PyDict_Type, &question->counts,
                          read_alphabet, &question->alphabet, read_number, &question->n_tokens,
                          read_number, &question->min_frequency, read_limit, &question->limit,
                          &PyFrozenSet_Type, &question->forbidden, &question->advance))
        return -1;
    if (question->n_tokens > (long long)MOST_TOKENS) {
        PyErr_SetString(PyExc_OverflowError, "too many tokens for this engine");
        return -1;
    }
    return 0;
}

/* -- Learning: the words --------------------------------------------------------------------- */

/* One item of the counts.  Returns 1 if it is a word, 0 if it has no pairs to count, and -1 and an
 * exception if it is none. */
static int read_item(PyObject *key, PyObject *value, int64_t *count)
{
    if (!PyBytes_Check(key) || !PyLong_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "counts must be a dict of bytes and int");
        return -1;
    }
    int overflow; /* reading an int runs no Python code */
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (PyBytes_GET_SIZE(key) < 2 || overflow < 0 || (!overflow && number <= 0))
        return 0;
    *count = overflow ? INT64_MAX : number;
    return 1;
}

/* Find how many cells the words take, and whether their counts are small enough. */
static int measure_words(PyObject *counts, size_t *n_cells)
{
    PyObject *key, *value;
    int64_t count, left = MOST_SYMBOLS;
    *n_cells = 0;
    for (Py_ssize_t at = 0; PyDict_Next(counts, &at, &key, &value);) {
        int is_word = read_item(key, value, &count);
        if (is_word < 0)
            return -1;
        if (!is_word)
            continue;
        Py_ssize_t length = PyBytes_GET_SIZE(key);
        if (count > left / length || (size_t)length > MOST_CELLS - WORD_HEADER ||
            *n_cells > MOST_CELLS - WORD_HEADER - (size_t)length) {
            PyErr_SetString(PyExc_OverflowError, "counts too large for this engine");
            return -1;
        }
        left -= count * length;
        *n_cells += WORD_HEADER + (size_t)length;
    }
    return 0;
}

static int add_words(PyObject *counts, struct learner *learner)
{
    PyObject *key, *value;
    int64_t count;
    for (Py_ssize_t at = 0; PyDict_Next(counts, &at, &key, &value);)
        if (read_item(key, value, &count) > 0 &&
            learner_add(learner, (const uint8_t *)PyBytes_AS_STRING(key),
                        (size_t)PyBytes_GET_SIZE(key), count) < 0)
            return -1;
    return 0;
}

/* A learner with all words; NULL and an exception if there can be none.  Between measuring and
 * adding nothing may change the dict: no Python code runs. */
static struct learner *load_words(const struct question *question, uint64_t seed)
{
    size_t n_cells;
    if (measure_words(question->counts, &n_cells) < 0)
        return NULL;
    struct learner *learner = learner_new(seed, n_cells, question->alphabet);
    if (!learner || add_words(question->counts, learner) < 0) {
        learner_free(learner);
        PyErr_NoMemory();
        return NULL;
    }
    return learner;
}

static struct learner *load_locked(const struct question *question, uint64_t seed)
{
    struct learner *learner;
#if defined(Py_GIL_DISABLED)
    Py_BEGIN_CRITICAL_SECTION(question->counts);
#endif
    learner = load_words(question, seed);
#if defined(Py_GIL_DISABLED)
    Py_END_CRITICAL_SECTION();
#endif
    return learner;
}

static int load_forbidden(struct learner *learner, PyObject *forbidden)
{
    PyObject *iterator = PyObject_GetIter(forbidden), *item;
    if (!iterator)
        return -1;
    while ((item = PyIter_Next(iterator))) {
        if (!PyBytes_Check(item))
            PyErr_SetString(PyExc_TypeError, "forbidden must be a frozenset of bytes");
        else if (learner_forbid(learner, (const uint8_t *)PyBytes_AS_STRING(item),
                                (size_t)PyBytes_GET_SIZE(item)) < 0)
            PyErr_NoMemory();
        Py_DECREF(item);
        if (PyErr_Occurred())
            break;
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : 0;
}

/* -- Learning: the work ---------------------------------------------------------------------- */

/* Tell of new tokens, and look for Ctrl-C. */
static int report(const struct question *question, size_t new_tokens)
{
    if (PyErr_CheckSignals() < 0)
        return -1;
    if (question->advance == Py_None || !new_tokens)
        return 0;
    PyObject *result = PyObject_CallFunction(question->advance, "n", (Py_ssize_t)new_tokens);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static enum learning learn_slice(struct learner *learner, bool first)
{
    enum learning state = LEARNING;
    Py_BEGIN_ALLOW_THREADS;
    if (first && learner_start(learner) < 0)
        state = NO_MEMORY;
    if (state == LEARNING)
        state = learner_learn(learner, SLICE);
    Py_END_ALLOW_THREADS;
    return state;
}

/* Learn all that is to be learned.  Returns why it ended, or NO_MEMORY and an exception. */
static enum learning learn_all(const struct question *question, struct learner *learner)
{
    enum learning state = LEARNING;
    for (bool first = true; state == LEARNING; first = false) {
        size_t before = learner->n_tokens;
        state = learn_slice(learner, first);
        if (state == NO_MEMORY)
            PyErr_NoMemory();
        else if (report(question, learner->n_tokens - before) < 0)
            state = NO_MEMORY;
    }
    return state;
}

/* -- Learning: the answer -------------------------------------------------------------------- */

static PyObject *list_tokens(const struct learner *learner)
{
    PyObject *list = PyList_New((Py_ssize_t)learner->n_tokens);
    for (size_t i = 0; list && i < learner->n_tokens; i++) {
        struct span token = learner->tokens[i];
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)learner->bytes + token.at,
                                                    (Py_ssize_t)token.length);
        if (bytes)
            PyList_SET_ITEM(list, (Py_ssize_t)i, bytes);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *list_merges(const struct learner *learner, PyObject *tokens)
{
    PyObject *list = PyList_New((Py_ssize_t)learner->n_tokens - BASE_TOKENS);
    for (size_t i = 0; list && i < learner->n_tokens - BASE_TOKENS; i++) {
        uint64_t pair = learner->merges[BASE_TOKENS + i];
        PyObject *merge = PyTuple_Pack(2, PyList_GET_ITEM(tokens, left_of(pair)),
                                       PyList_GET_ITEM(tokens, right_of(pair)));
        if (merge)
            PyList_SET_ITEM(list, (Py_ssize_t)i, merge);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *make_answer(const struct learner *learner, enum learning state)
{
    const char *stopped = state == ENOUGH_TOKENS ? "vocab size reached"
                          : state == TOO_RARE    ? "nothing left above min_frequency"
                                                 : "no pairs left";
    PyObject *tokens = list_tokens(learner);
    PyObject *merges = tokens ? list_merges(learner, tokens) : NULL;
    PyObject *new_tokens = merges ? PyList_GetSlice(tokens, BASE_TOKENS, PY_SSIZE_T_MAX) : NULL;
    PyObject *answer = new_tokens ? Py_BuildValue("OOs", merges, new_tokens, stopped) : NULL;
    Py_XDECREF(tokens);
    Py_XDECREF(merges);
    Py_XDECREF(new_tokens);
    return answer;
}

PyDoc_STRVAR(learn_merges_doc,
             "learn_merges(counts, alphabet, n_tokens, min_frequency, max_token_length,\n"
             "             forbidden, advance, /)\n--\n\n"
             "Learn merges from counts of pre-tokens.\n\n"
             "Args:\n"
             "    counts: pre-token -> count, a dict of bytes.\n"
             "    alphabet: all 256 bytes; of pairs equal in count, the one that sorts first by\n"
             "        it is merged.\n"
             "    n_tokens: how many tokens may be added to the 256 bytes.\n"
             "    min_frequency: pairs that occur less often are not merged.\n"
             "    max_token_length: or None.\n"
             "    forbidden: byte strings that must not become a token, a frozenset.\n"
             "    advance: told now and then how many tokens are new; or None.\n\n"
             "Returns:\n"
             "    Merges, as tuples of two tokens; tokens that are new; and why it stopped.\n\n"
             "Raises:\n"
             "    OverflowError: the counts, or n_tokens, are too large for this engine.");

static PyObject *module_learn_merges(PyObject *Py_UNUSED(module), PyObject *args)
{
    struct question question;
    uint64_t seed;
    if (read_question(args, &question) < 0 || get_seed(&seed) < 0)
        return NULL;
    struct learner *learner = load_locked(&question, seed);
    if (!learner)
        return NULL;
    learner->wanted = question.n_tokens > 0 ? (size_t)question.n_tokens : 0;
    learner->min_frequency = question.min_frequency > 1 ? question.min_frequency : 1;
    learner->limit = question.limit > 0 ? (uint64_t)question.limit : 0;
    PyObject *answer = NULL;
    if (load_forbidden(learner, question.forbidden) == 0) {
        enum learning state = learn_all(&question, learner);
        if (state != NO_MEMORY)
            answer = make_answer(learner, state);
    }
    learner_free(learner);
    return answer;
}

/* -- The module ------------------------------------------------------------------------------ */

static PyMethodDef training_methods[] = {
    {"learn_merges", module_learn_merges, METH_VARARGS, learn_merges_doc},
    {NULL, NULL, 0, NULL},
};

int add_training(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &counter_spec, NULL);
    if (!type)
        return -1;
    if (PyModule_AddObject(module, "PretokenCounter", type) < 0) {
        Py_DECREF(type);
        return -1;
    }
    return PyModule_AddFunctions(module, training_methods);
}
