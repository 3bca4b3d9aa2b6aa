/* Whether text is already in Unicode's normal form C, as nearly all text is. */

#ifndef BPE_SCAN_NORMAL_H
#define BPE_SCAN_NORMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether NFC certainly leaves a text as it is, in the version of Unicode that the module
 * normalizes by.  If false, it still may.  The characters have `width` bytes: 1, 2 or 4. */
bool surely_nfc(const void *text, int width, size_t length);

/* Whether NFC leaves a character as it is, whatever comes before it.  Only with what comes after
 * it may it be joined. */
bool is_normal_start(uint32_t code_point);

/* What unchecked bytes turned out to be. */
enum utf8_kind {
    NOT_UTF8,
    UTF8,
    UTF8_SURELY_NFC,
};

/* Check bytes: whether they are UTF-8 that Python decodes, and then the same as above. */
enum utf8_kind utf8_kind(const uint8_t *text, size_t size);

#endif
