/* Whether text is in Unicode's normal form C already, as nearly all text is. */

#ifndef BPE_SCAN_NORMAL_H
#define BPE_SCAN_NORMAL_H

#include <stdbool.h>
#include <stddef.h>

/* Tell whether NFC surely leaves a text as it is, in every version of Unicode.  If not, it may do
 * so all the same.  The characters have `width` bytes: 1, 2 or 4. */
bool surely_nfc(const void *text, int width, size_t length);

#endif
