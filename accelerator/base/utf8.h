/* Characters as UTF-8. */

#ifndef BPE_BASE_UTF8_H
#define BPE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of a character up to `highest`, the first one lowest, and how many there are.  Computes
 * all cases and then picks one: which case it is can often not be predicted. */
static inline uint32_t utf8_bytes(uint32_t c, uint32_t highest, unsigned *width)
{
    uint32_t last = (c & 0x3F) | 0x80, middle = (c >> 6 & 0x3F) | 0x80;
    uint32_t bytes = 0xC0 | c >> 6 | last << 8;
    *width = 2;
    if (highest >= 0x800) {
        uint32_t three = 0xE0 | c >> 12 | middle << 8 | last << 16;
        bytes = c >= 0x800 ? three : bytes;
        *width += c >= 0x800;
    }
    if (highest >= 0x10000) {
        uint32_t four = 0xF0 | c >> 18 | (0x80 | (c >> 12 & 0x3F)) << 8 | middle << 16 | last << 24;
        bytes = c >= 0x10000 ? four : bytes;
        *width += c >= 0x10000;
    }
    *width -= c < 0x80;
    return c < 0x80 ? c : bytes;
}

static inline bool is_surrogate(uint32_t c)
{
    return (c & 0x1FF800) == 0xD800;
}

/* Write characters at *out, eight at a time, as long as there are eight.  Sets *surrogate if one is
 * among them, and moves *out on.  Returns how many characters were written.
 *
 * INVARIANT: there is room for 3 bytes for each character of UCS-2, 4 of UCS-4, and 4 more. */
size_t write_ucs2_avx2(const uint16_t *text, size_t length, uint8_t **out, bool *surrogate);
size_t write_ucs4_avx2(const uint32_t *text, size_t length, uint8_t **out, bool *surrogate);

#endif
