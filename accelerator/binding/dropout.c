/* Encoding with dropout. */

#include "binding/encoder.h"
#include "binding/text.h"
#include "encode/dropout.h"

static int drop_in_text(Encoder *self, struct worker *worker, struct dropout *dropout,
                        PyObject *string)
{
    size_t size;
    const uint8_t *text = utf8_of(worker, string, &size);
    if (!text || check_scanner(self) < 0)
        return -1;
    int status;
    /* NOTE: the caller has a reference to the string, whoever else drops theirs. */
    Py_BEGIN_ALLOW_THREADS
    status = encode_text_dropping(&self->vocabulary, worker, self->cutter, dropout, text, size);
    Py_END_ALLOW_THREADS
    if (status < 0)
        PyErr_NoMemory();
    return status;
}

static int drop_in_pretokens(Encoder *self, struct worker *worker, struct dropout *dropout,
                             PyObject *pretokens)
{
    PyObject *items = items_of_list(pretokens, "pretokens");
    Py_ssize_t done = items ? 0 : -1, n = items ? PyTuple_GET_SIZE(items) : 0;
    while (done >= 0 && done < n) {
        size_t count;
        done = gather(worker, items, done, &count);
        if (done >= 0 && encode_pieces_dropping(&self->vocabulary, worker, dropout, worker->text, 0,
                                                count) < 0) {
            PyErr_NoMemory();
            done = -1;
        }
    }
    Py_XDECREF(items);
    return done < 0 ? -1 : 0;
}

const char encode_dropping_doc[] =
    "encode_dropping(text, limit, state, /)\n--\n\n"
    "Encode with dropout.\n\n"
    "Args:\n"
    "    text: a text, or the list of its pre-tokens.\n"
    "    limit: of 2^53, how likely a merge is passed over.\n"
    "    state: of the generator, 64 bits.\n\n"
    "Returns:\n"
    "    The ids, and the state for the next text.";

PyObject *encoder_encode_dropping(Encoder *self, PyObject *args)
{
    PyObject *text, *result = NULL;
    unsigned long long limit, state;
    if (!PyArg_ParseTuple(args, "OKK:encode_dropping", &text, &limit, &state))
        return NULL;
    struct worker *worker = need_worker(self);
    if (!worker)
        return NULL;
    struct dropout dropout = {.limit = limit, .state = state};
    int status = PyUnicode_Check(text) ? drop_in_text(self, worker, &dropout, text)
                                       : drop_in_pretokens(self, worker, &dropout, text);
    if (status == 0) {
        PyObject *ids = list_of(self, worker->ids, worker->n_ids);
        result = ids ? Py_BuildValue("NK", ids, (unsigned long long)dropout.state) : NULL;
    }
    dropout_release(&dropout);
    put_back(self, worker);
    return result;
}
