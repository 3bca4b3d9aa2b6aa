/* An encoder as one block of bytes, which can be kept in a file and used directly from there:
 * nothing in it has to be rebuilt, and processes that map the file share it.
 *
 * Such a file may be damaged, or written by an attacker.  So a checksum detects damage, and
 * everything that C relies on is checked, above all that each number is in its range and that the
 * tokens of a text have as many bytes as the text.  A file that passes can give wrong ids, as any
 * vocabulary file can, but it can't make C read or write wrong memory, if nobody changes it
 * afterward. */

#ifndef BPE_ENCODE_IMAGE_H
#define BPE_ENCODE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "encode/tokens.h"
#include "encode/vocabulary.h"

/* What an encoder was made from, to be given back: the ids of its tokens in the order listed, those
 * of added tokens after the others, and its merges. */
struct lists {
    uint32_t *ids;
    uint32_t n_vocab, n_ids;
    struct id_pair {
        uint32_t left, right;
    } *merges;
    uint32_t n_merges;
    bool shares_ids; /* two tokens of the vocabulary have one id: then it can't be given back */
};

/* The content of an image.  The memory belongs to somebody else: to an encoder, or to the image. */
struct image {
    struct tokens tokens;
    struct vocabulary vocabulary;
    struct lists lists;
    const uint8_t *rest; /* any bytes that go with it */
    size_t rest_size;
};

/* The size of an image; and write it, at an address that is a multiple of 8. */
size_t image_size(const struct image *image);
void image_write(const struct image *image, uint8_t *out);

/* Read an image.  Its parts stay where they are; `whole` of the vocabulary is not set, but
 * whole_keys.  False if it is damaged, of another version or byte order, or not what it should be. */
bool image_read(struct image *image, const uint8_t *data, size_t size);

#endif
