/* Whether text is in normal form C: the quick check of Unicode Standard Annex 15, section 9.
 *
 * Text is in that form if NFC replaces no character of it, if marks on one letter come in the order
 * of their combining classes, and if no character composes with one before.  Characters that may
 * compose are few, and of those that are common it is known what they compose with.  Which kind of
 * character may follow which is worked out in make_tables.py. */

#include "scan/normal.h"

#include "scan/normal_tables.h"

enum {
    RUN = 32,
    LEAST_CHANGED = 0x300, /* all characters before this one are of kind 0 */
};

#define SURELY_NFC(NAME, UNIT)                                                                     \
    static inline bool NAME##_low(const UNIT *text)                                                \
    {                                                                                              \
        UNIT high = 0;                                                                             \
        for (int i = 0; i < RUN; i++)                                                              \
            high |= (UNIT)(text[i] >= LEAST_CHANGED);                                              \
        return !high;                                                                              \
    }                                                                                              \
                                                                                                   \
    static bool NAME(const UNIT *text, size_t length)                                              \
    {                                                                                              \
        const UNIT *end = text + length;                                                           \
        unsigned before = 0;                                                                       \
        while (text < end) {                                                                       \
            size_t n = end - text < RUN ? (size_t)(end - text) : RUN;                              \
            if (n == RUN && NAME##_low(text)) {                                                    \
                before = 0;                                                                        \
                text += RUN;                                                                       \
                continue;                                                                          \
            }                                                                                      \
            uint64_t followed = 1;                                                                 \
            for (size_t i = 0; i < n; i++) {                                                       \
                unsigned kind = normal_kind(text[i]);                                              \
                followed &= normal_followers[before] >> kind;                                      \
                before = kind;                                                                     \
            }                                                                                      \
            if (!followed)                                                                         \
                return false;                                                                      \
            text += n;                                                                             \
        }                                                                                          \
        return true;                                                                               \
    }
SURELY_NFC(surely_nfc_2, uint16_t)
SURELY_NFC(surely_nfc_4, uint32_t)

bool surely_nfc(const void *text, int width, size_t length)
{
    if (width == 1) /* up to U+00FF, NFC changes nothing */
        return true;
    return width == 2 ? surely_nfc_2(text, length) : surely_nfc_4(text, length);
}
