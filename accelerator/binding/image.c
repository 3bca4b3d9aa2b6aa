/* Encoders as bytes, and back. */

#include "binding/encoder.h"

const char image_doc[] = PyDoc_STR("image(rest, /)\n--\n\n"
                                   "Return the encoder's state, followed by `rest`, as bytes.");

PyObject *encoder_image(Encoder *self, PyObject *rest)
{
    if (!PyBytes_Check(rest)) {
        PyErr_SetString(PyExc_TypeError, "rest must be bytes");
        return NULL;
    }
    if (self->lists.shares_ids || (uint64_t)PyBytes_GET_SIZE(rest) > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "this encoder can't be written as an image");
        return NULL;
    }
    struct image image = {self->tokens, self->vocabulary, self->lists,
                          (const uint8_t *)PyBytes_AS_STRING(rest), (size_t)PyBytes_GET_SIZE(rest)};
    size_t size = image_size(&image);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (bytes) /* what it holds begins at a multiple of 8, as objects do */
        image_write(&image, (uint8_t *)PyBytes_AS_STRING(bytes));
    return bytes;
}

const char from_image_doc[] =
    PyDoc_STR("from_image(data, /)\n--\n\n"
              "Read what `image` wrote, from any buffer that begins at a multiple of 8.\n\n"
              "Returns:\n"
              "    An encoder without a pattern, which uses the buffer, so that nobody may change\n"
              "    it; and the rest.  None if it is damaged, or of another version.");

PyObject *encoder_from_image(PyTypeObject *type, PyObject *data)
{
    PyObject *view = PyMemoryView_FromObject(data);
    if (!view)
        return NULL;
    const Py_buffer *buffer = PyMemoryView_GET_BUFFER(view);
    struct image image;
    if (!PyBuffer_IsContiguous(buffer, 'C') ||
        !image_read(&image, buffer->buf, (size_t)buffer->len)) {
        Py_DECREF(view);
        Py_RETURN_NONE;
    }
    PyObject *rest = PyBytes_FromStringAndSize((const char *)image.rest,
                                               (Py_ssize_t)image.rest_size);
    Encoder *self = rest ? new_encoder(type) : NULL;
    if (!self) {
        Py_XDECREF(rest);
        Py_DECREF(view);
        return NULL;
    }
    self->tokens = image.tokens;
    self->vocabulary = image.vocabulary;
    if (self->vocabulary.whole_keys)
        self->vocabulary.whole = &self->tokens;
    self->lists = image.lists;
    self->owner = view;
    PyObject *both = open_ints(self) == 0 ? PyTuple_Pack(2, self, rest) : NULL;
    Py_DECREF(self);
    Py_DECREF(rest);
    return both;
}
