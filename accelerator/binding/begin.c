/* How much of a text fits into a number of ids, without encoding the rest. */

#include "binding/encoder.h"

#include <stdlib.h>

#include "binding/finder.h"
#include "binding/text.h"
#include "scan/normal.h"

enum {
    CHARACTERS = 6, /* of a token; most have fewer */
    MARGIN = 256,
    NEAR = 64, /* characters; usually NFC treats what begins at one of them independently */
};

/* A text with strings in it that all map to an id, and room for `most` ids. */
struct beginning {
    Encoder *encoder;
    struct worker *worker;
    PyObject *string;
    const Finder *finder; /* NULL if there are no matches */
    const struct matches *matches;
    size_t most;
    bool unsure;   /* whether NFC leaves the text as it is */
    size_t length; /* the result, in characters */
};

/* Part of a text between strings, with some of its ids. */
struct part {
    const uint8_t *text;
    size_t size;
    size_t first; /* of its ids, in worker->ids; more than `kept` are there */
    size_t kept;
};

/* The number of bytes of a part's i-th id. */
static inline size_t bytes_of(const struct beginning *given, const struct part *part, size_t i)
{
    return token_length(&given->encoder->tokens, given->worker->ids[part->first + i]);
}

/* Whether the first `end` bytes of a part, alone, have the maximum number of ids to keep: 1 or 0,
 * or -1 if out of memory.  In the whole text the first i ids end at `position`, inside the last
 * character of these bytes, or after it.
 *
 * Until a place where text can always be cut, the ids are those of the whole text.  A token ends at
 * that place, because no pre-token crosses it. */
static int fits(struct beginning *given, const struct part *part, size_t end, size_t i,
                size_t position)
{
    struct cutter cutter = given->encoder->cutter;
    struct worker *worker = given->worker;
    size_t cut = cutter.cuts_safely ? last_safe_cut(part->text, end) : 0;
    while (position > cut)
        position -= bytes_of(given, part, --i);
    size_t before = worker->n_ids;
    if (encode_text(&given->encoder->vocabulary, worker, cutter, part->text + position,
                    end - position, true) < 0)
        return -1;
    size_t more = worker->n_ids - before;
    worker->n_ids = before;
    return i + more <= part->kept;
}

/* Find the longest beginning of a part that ends with one of the tokens that are kept and, alone,
 * has no more ids than these; less text may have more.  Returns its bytes, or SIZE_MAX if memory is
 * short. */
static size_t kept_bytes(struct beginning *given, const struct part *part)
{
    size_t position = 0, tried = SIZE_MAX;
    for (size_t i = 0; i < part->kept; i++)
        position += bytes_of(given, part, i);
    for (size_t i = part->kept; i > 0; i--) {
        size_t end = position; /* more bytes follow, as there are more ids */
        while (end < part->size && (part->text[end] & 0xC0) == 0x80)
            end++;
        int status = end == tried ? 0 : fits(given, part, end, i, position);
        if (status)
            return status < 0 ? SIZE_MAX : end;
        tried = end;
        position -= bytes_of(given, part, i - 1);
    }
    return 0;
}

/* Count the characters of text, which is all bytes but those that continue one. */
static size_t characters_in(const uint8_t *text, size_t size)
{
    size_t n = size, done = 0;
    while (done < size) { /* by a byte, as far as it counts, so that the loop works on many */
        size_t stop = size - done < UINT8_MAX ? size : done + UINT8_MAX;
        uint8_t continued = 0;
        for (; done < stop; done++)
            continued += (text[done] & 0xC0) == 0x80;
        n -= continued;
    }
    return n;
}

/* Written so that compilers look at several characters at once. */
#define HAS_SURROGATE(NAME, UNIT)                                                                  \
    static bool NAME(const UNIT *text, size_t length)                                              \
    {                                                                                              \
        UNIT found = 0;                                                                            \
        for (size_t i = 0; i < length; i++)                                                        \
            found |= (UNIT)((text[i] & (UNIT)~0x7FF) == 0xD800);                                   \
        return found;                                                                              \
    }
HAS_SURROGATE(ucs2_has_surrogate, Py_UCS2)
HAS_SURROGATE(ucs4_has_surrogate, Py_UCS4)

static bool has_surrogate(PyObject *string, size_t start, size_t end)
{
    switch (PyUnicode_KIND(string)) {
    case PyUnicode_1BYTE_KIND:
        return false;
    case PyUnicode_2BYTE_KIND:
        return ucs2_has_surrogate(PyUnicode_2BYTE_DATA(string) + start, end - start);
    default:
        return ucs4_has_surrogate(PyUnicode_4BYTE_DATA(string) + start, end - start);
    }
}

/* Find how many of the first characters of a text NFC certainly leaves as they are, whatever comes
 * after them: `stop`, or a few less; 0 if that is not known. */
static size_t normal_beginning(PyObject *string, size_t stop)
{
    size_t at = stop;
    while (at > 0 && !is_normal_start(PyUnicode_READ_CHAR(string, (Py_ssize_t)at)))
        if (stop - --at == NEAR)
            return 0;
    return surely_nfc(PyUnicode_DATA(string), (int)PyUnicode_KIND(string), at) ? at : 0;
}

/* Encode the text between two places until there are too many ids.  If `shortly`, only its beginning
 * is written as UTF-8, which is mostly enough, and encoded as far as a cut is safe.  Returns 0; 2 if
 * there is a surrogate; or -1 if memory is short. */
static int encode_part(struct beginning *given, struct part *part, size_t start, size_t end,
                       bool shortly)
{
    struct worker *worker = given->worker;
    struct cutter cutter = given->encoder->cutter;
    size_t stop = shortly ? start + (given->most - part->first) * CHARACTERS + MARGIN : end;
    worker->n_ids = part->first;
    if (shortly && given->unsure && !(stop = normal_beginning(given->string, stop)))
        return 0;
    part->text = checked_utf8_between(worker, given->string, start, stop, &part->size);
    if (!part->text)
        return part->size ? 2 : -1;
    if (shortly)
        part->size = last_safe_cut(part->text, part->size);
    return encode_until(&given->encoder->vocabulary, worker, cutter, part->text, part->size,
                        given->most);
}

/* Whether to look only at the beginning of the text between two places first. */
static bool is_much(const struct beginning *given, size_t room, size_t start, size_t end)
{
    return !PyUnicode_IS_ASCII(given->string) && given->encoder->cutter.cuts_safely &&
           end - start > MARGIN && (end - start - MARGIN) / CHARACTERS > room;
}

/* Find how much of the text between two places is kept, if not all of it.  Returns 1 if so, with the
 * result; 0 if not; or as encode_part. */
static int begin_part(struct beginning *given, size_t start, size_t end)
{
    struct worker *worker = given->worker;
    struct part part = {.first = worker->n_ids};
    bool ascii = PyUnicode_IS_ASCII(given->string);
    size_t room = given->most - part.first;
    bool shortly = is_much(given, room, start, end);
    if (shortly && has_surrogate(given->string, start, end))
        return 2;
    int status = encode_part(given, &part, start, end, shortly);
    if (status == 0 && shortly && worker->n_ids <= given->most) {
        if (given->unsure && !is_surely_nfc(given->string))
            return 2;
        status = encode_part(given, &part, start, end, false);
    }
    if (status || worker->n_ids <= given->most)
        return status;
    part.kept = room;
    size_t kept = kept_bytes(given, &part);
    if (kept == SIZE_MAX)
        return -1;
    given->length = start + (ascii ? kept : characters_in(part.text, kept));
    return 1;
}

/* The same for all of a text.  Without the last characters of one part, the strings before it are
 * found where they were, and no others.  Needs no interpreter's lock. */
static int begin_all(struct beginning *given)
{
    const struct matches *matches = given->matches;
    size_t done = 0, length = (size_t)PyUnicode_GET_LENGTH(given->string);
    for (size_t i = 0; i <= matches->n; i++) {
        size_t start = i < matches->n ? matches->items[i].start : length;
        int status = done < start ? begin_part(given, done, start) : 0;
        if (status)
            return status;
        given->length = start;
        if (i == matches->n)
            break;
        uint32_t number = matches->items[i].string;
        if (given->worker->n_ids >= given->most)
            return 1;
        if (worker_add_id(given->worker, given->finder->ids[number]) < 0)
            return -1;
        done = start + given->finder->finder.lengths[number];
    }
    return 0;
}

static PyObject *length_of(struct beginning *given)
{
    int status;
    if (PyUnicode_GET_LENGTH(given->string) < LONG_TEXT) {
        status = begin_all(given);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = begin_all(given);
        Py_END_ALLOW_THREADS
    }
    if (status < 0)
        return PyErr_NoMemory();
    if (status == 2)
        Py_RETURN_NONE;
    return PyLong_FromSize_t(given->length);
}

const char begin_doc[] =
    PyDoc_STR("begin(finder, text, most, /)\n--\n\n"
              "Return how many characters of a text fit into `most` ids.\n\n"
              "They are all of it, or end where one of the first `most` tokens of the text ends;\n"
              "encoded alone, they have `most` ids or fewer.\n\n"
              "Args:\n"
              "    finder: a Finder, as for encode_around; None for text as of encode_plain.\n"
              "    most: an int, 0 or more.\n\n"
              "Returns:\n"
              "    How many; None where encode_around or encode_plain return None.");

PyObject *encoder_begin(Encoder *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args != 3 || (args[0] != Py_None && !finder_of(args[0]))) {
        PyErr_SetString(PyExc_TypeError, "begin() takes a Finder or None, a text and an int");
        return NULL;
    }
    Py_ssize_t most = PyNumber_AsSsize_t(args[2], NULL); /* clamped */
    if (most == -1 && PyErr_Occurred())
        return NULL;
    if (!is_plain_but_for_nfc(self, args[1]))
        Py_RETURN_NONE;
    struct matches matches = {0};
    struct beginning given = {.encoder = self, .string = args[1], .matches = &matches};
    given.most = most < 0 ? 0 : (size_t)most;
    given.finder = args[0] == Py_None ? NULL : (const Finder *)args[0];
    size_t length = (size_t)PyUnicode_GET_LENGTH(args[1]);
    PyObject *result = NULL;
    if (given.finder && find_in(given.finder, args[1], 0, length, &matches) < 0) {
        free(matches.items);
        return NULL;
    }
    /* If the text is short, or contains strings, check all of it now. */
    given.unsure = self->or_nfc && !matches.n && is_much(&given, given.most, 0, length);
    if (!have_ids(self, given.finder, &matches) || (!given.unsure && !is_plain(self, args[1])))
        result = Py_NewRef(Py_None);
    else if ((given.worker = need_worker(self))) {
        result = length_of(&given);
        put_back(self, given.worker);
    }
    free(matches.items);
    return result;
}
