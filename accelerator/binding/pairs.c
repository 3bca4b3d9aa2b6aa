/* Python's side of learning where Python chooses the pairs: the type `PairLearner`.
 *
 * Threads may share one; they take turns. */

#include "binding/pairs.h"

#include <stdbool.h>
#include <stdint.h>

#include "binding/encoder.h"
#include "binding/training.h"
#include "train/learn.h"

typedef struct {
    PyObject_HEAD
    struct learner *learner;
    bool failed; /* ran out of memory in the middle of a merge */
} PairLearner;

static void pair_learner_dealloc(PairLearner *self)
{
    PyTypeObject *type = Py_TYPE(self);
    learner_free(self->learner);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

PyDoc_STRVAR(pair_learner_doc,
             "PairLearner(counts, alphabet, max_token_length=None)\n--\n\n"
             "Merges pairs that the caller chooses, in the counted pre-tokens of a text.\n\n"
             "Tokens are numbers: bytes by their place in the alphabet, then merged ones by age.\n\n"
             "Args:\n"
             "    counts: pre-token -> count, a dict of bytes.\n"
             "    alphabet: all 256 bytes; ties go to the pair that sorts first in their\n"
             "        order.\n"
             "    max_token_length: in bytes; pairs that make a token this long are skipped.\n\n"
             "Raises:\n"
             "    OverflowError: the counts are too large for this engine.");

/* Count the pairs.  Returns 0, or -1 and an exception. */
static int start(struct learner *learner, long long longest)
{
    int status;
    learner->min_frequency = 1;
    learner->limit = longest > 0 ? (uint64_t)longest : UINT64_MAX;
    Py_BEGIN_ALLOW_THREADS;
    status = learner_list_pairs(learner);
    if (status == 0)
        status = learner_start(learner);
    Py_END_ALLOW_THREADS;
    if (status < 0)
        PyErr_NoMemory();
    return status;
}

static PyObject *pair_learner_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"counts", "alphabet", "max_token_length", NULL};
    PyObject *counts, *alphabet, *limit = Py_None;
    long long longest = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|O:PairLearner", names, &PyDict_Type,
                                     &counts, &alphabet, &limit))
        return NULL;
    if (limit != Py_None) {
        longest = PyLong_AsLongLong(limit);
        if (longest == -1 && PyErr_Occurred())
            return NULL;
    }
    PairLearner *self = (PairLearner *)type->tp_alloc(type, 0); /* all zero */
    if (!self)
        return NULL;
    self->learner = learner_of(counts, alphabet);
    if (!self->learner || start(self->learner, longest) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* Whether the learner has failed; if so, an exception is set. */
static bool has_failed(const PairLearner *self)
{
    if (self->failed)
        PyErr_SetString(PyExc_RuntimeError, "this learner ran out of memory; make a new one");
    return self->failed;
}

PyDoc_STRVAR(best_doc,
             "best()\n--\n\n"
             "Return the most frequent pair and its count, (left, right, count); None if no pair\n"
             "is left.");

static PyObject *pair_learner_best(PairLearner *self, PyObject *Py_UNUSED(ignored))
{
    uint64_t pair = 0;
    int64_t count = 0;
    bool found;
    if (has_failed(self))
        return NULL;
    LOCKED(self, found = learner_best(self->learner, &pair, &count));
    if (!found)
        Py_RETURN_NONE;
    return Py_BuildValue("IIL", (unsigned int)left_of(pair), (unsigned int)right_of(pair),
                         (long long)count);
}

static void drop(struct learner *learner)
{
    uint64_t pair;
    int64_t count;
    if (learner_best(learner, &pair, &count))
        learner_drop_best(learner);
}

PyDoc_STRVAR(drop_doc, "drop()\n--\n\nForget the best pair.");

static PyObject *pair_learner_drop(PairLearner *self, PyObject *Py_UNUSED(ignored))
{
    if (has_failed(self))
        return NULL;
    LOCKED(self, drop(self->learner));
    Py_RETURN_NONE;
}

PyDoc_STRVAR(join_doc,
             "join(left, right, /)\n--\n\n"
             "Merge a pair everywhere; the new token gets the next number.  Returns how often the\n"
             "pair was merged.");

enum joining { JOINED, NO_SUCH_TOKEN, TOO_MANY_TOKENS, JOIN_OUT_OF_MEMORY };

static enum joining join(PairLearner *self, unsigned int left, unsigned int right, int64_t *times)
{
    struct learner *learner = self->learner;
    if (left >= learner->n_tokens || right >= learner->n_tokens)
        return NO_SUCH_TOKEN;
    if (learner->n_tokens - learner->n_base >= MOST_TOKENS)
        return TOO_MANY_TOKENS;
    int64_t before = learner->joined;
    if (learner_join(learner, make_pair(left, right)) < 0) {
        self->failed = true;
        return JOIN_OUT_OF_MEMORY;
    }
    *times = learner->joined - before;
    return JOINED;
}

static PyObject *pair_learner_join(PairLearner *self, PyObject *args)
{
    unsigned int left, right;
    int64_t times = 0;
    enum joining status;
    if (!PyArg_ParseTuple(args, "II:join", &left, &right) || has_failed(self))
        return NULL;
    LOCKED(self, status = join(self, left, right, &times));
    if (status == JOINED)
        return PyLong_FromLongLong(times);
    if (status == JOIN_OUT_OF_MEMORY)
        return PyErr_NoMemory();
    PyErr_SetString(PyExc_ValueError, status == NO_SUCH_TOKEN
                                          ? "left and right must be numbers of existing tokens"
                                          : "too many tokens for this engine");
    return NULL;
}

static PyMethodDef pair_learner_methods[] = {
    {"best", (PyCFunction)pair_learner_best, METH_NOARGS, best_doc},
    {"drop", (PyCFunction)pair_learner_drop, METH_NOARGS, drop_doc},
    {"join", (PyCFunction)pair_learner_join, METH_VARARGS, join_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pair_learner_slots[] = {
    {Py_tp_doc, (void *)pair_learner_doc},
    {Py_tp_new, (void *)pair_learner_make},
    {Py_tp_dealloc, (void *)pair_learner_dealloc},
    {Py_tp_methods, pair_learner_methods},
    {0, NULL},
};

PyType_Spec pair_learner_spec = {
    .name = "_bpe_tokenizer.native.PairLearner",
    .basicsize = sizeof(PairLearner),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = pair_learner_slots,
};
