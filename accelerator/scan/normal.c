/* Whether text is in normal form C: the quick check of Unicode Standard Annex 15, section 9.
 *
 * Text is in that form if NFC replaces no character of it, if marks on one letter come in the order
 * of their combining classes, and if no character composes with one before.  Few
 * characters can compose, and for the common ones the tables know what they compose with.
 * make_tables.py works out which kind of character may follow which. */

#include "scan/normal.h"

#include "scan/normal_tables.h"

enum {
    RUN = 32,
    LEAST_CHANGED = 0x300, /* all characters before this one are of kind 0 */
    SKIPPED = 8,           /* runs, after one of another script */
};

/* Whether a character is not among some of kind 0: before LEAST_CHANGED; Greek and Cyrillic; signs of
 * punctuation; kana; Han.  Written so that compilers look at several characters at once. */
#define IS_BEYOND(UNIT, c, first, last) ((UNIT)((UNIT)((c) - (first)) > (last) - (first)))
#define IS_RARE(UNIT, c)                                                                           \
    (UNIT)(IS_BEYOND(UNIT, c, 0, LEAST_CHANGED - 1) & IS_BEYOND(UNIT, c, 0x3A3, 0x482) &           \
           IS_BEYOND(UNIT, c, 0x2002, 0x2064) & IS_BEYOND(UNIT, c, 0x3041, 0x3096) &               \
           IS_BEYOND(UNIT, c, 0x309B, 0x30FF) & IS_BEYOND(UNIT, c, 0x3220, 0xA48C))

#define SURELY_NFC(NAME, UNIT)                                                                     \
    static inline bool NAME##_low(const UNIT *text)                                                \
    {                                                                                              \
        UNIT high = 0;                                                                             \
        for (int i = 0; i < RUN; i++)                                                              \
            high |= (UNIT)(text[i] >= LEAST_CHANGED);                                              \
        return !high;                                                                              \
    }                                                                                              \
                                                                                                   \
    static inline bool NAME##_usual(const UNIT *text)                                              \
    {                                                                                              \
        UNIT rare = 0;                                                                             \
        for (int i = 0; i < RUN; i++)                                                              \
            rare |= IS_RARE(UNIT, text[i]);                                                        \
        return !rare;                                                                              \
    }                                                                                              \
                                                                                                   \
    static bool NAME(const UNIT *text, size_t length)                                              \
    {                                                                                              \
        const UNIT *end = text + length;                                                           \
        unsigned before = 0, skip = 0;                                                             \
        while (text < end) {                                                                       \
            size_t n = end - text < RUN ? (size_t)(end - text) : RUN;                              \
            if (n == RUN && (NAME##_low(text) || (!skip && NAME##_usual(text)))) {                 \
                before = 0;                                                                        \
                text += RUN;                                                                       \
                continue;                                                                          \
            }                                                                                      \
            skip = skip ? skip - 1 : SKIPPED;                                                      \
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

bool is_normal_start(uint32_t code_point)
{
    return code_point < LEAST_CHANGED || normal_kind(code_point) == 0;
}

/* -- UTF-8 ----------------------------------------------------------------------------------- */

enum { ASCII_RUN = 32 };

static inline bool is_ascii_run(const uint8_t *text)
{
    uint8_t high = 0;
    for (int i = 0; i < ASCII_RUN; i++)
        high |= text[i];
    return high < 0x80;
}

static inline bool continues(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* The character that is not ASCII at `text`, of at most `size` bytes; *width is 0 if there is none. */
static inline uint32_t read_wide(const uint8_t *text, size_t size, unsigned *width)
{
    uint8_t lead = text[0];
    *width = 0;
    if (lead < 0xE0) {
        if (lead < 0xC2 || size < 2 || !continues(text[1]))
            return 0;
        *width = 2;
        return (lead & 0x1Fu) << 6 | (text[1] & 0x3Fu);
    }
    if (size < 3 || !continues(text[1]) || !continues(text[2]))
        return 0;
    uint32_t c = (text[1] & 0x3Fu) << 6 | (text[2] & 0x3Fu);
    if (lead < 0xF0) {
        c |= (lead & 0xFu) << 12;
        *width = c < 0x800 || c >> 11 == 0xD800 >> 11 ? 0 : 3; /* too long, or a surrogate */
        return c;
    }
    if (lead > 0xF4 || size < 4 || !continues(text[3]))
        return 0;
    c = c << 6 | (text[3] & 0x3Fu) | (lead & 0x7u) << 18;
    *width = c < 0x10000 || c > 0x10FFFF ? 0 : 4;
    return c;
}

enum utf8_kind utf8_kind(const uint8_t *text, size_t size)
{
    const uint8_t *end = text + size;
    uint64_t followed = 1;
    unsigned before = 0, width;
    while (text < end) {
        if (*text < 0x80) {
            before = 0;
            text++;
            while (end - text >= ASCII_RUN && is_ascii_run(text))
                text += ASCII_RUN;
            continue;
        }
        uint32_t c = read_wide(text, (size_t)(end - text), &width);
        if (!width)
            return NOT_UTF8;
        unsigned kind = normal_kind(c);
        followed &= normal_followers[before] >> kind;
        before = kind;
        text += width;
    }
    return followed & 1 ? UTF8_SURELY_NFC : UTF8;
}
