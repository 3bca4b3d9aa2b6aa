/* Finding any of many strings in a text: the leftmost match, the longest there, then the next.
 *
 * This finds added tokens.  Most texts have none, so the search first skips text where no string can
 * begin, judging by the strings' first two characters; if there are few of these, it skips many
 * characters at a time.  From a place where a string may begin, it goes on as long as every two
 * characters are adjacent in some string.  No string can cross the end of that stretch.  An
 * automaton of all strings (Aho and Corasick, "Efficient string matching", 1975) reads the stretch
 * backward and knows, at each character, the longest string that begins there.  So each character
 * is read at most three times, whatever the strings and the text. */

#ifndef BPE_FIND_FIND_H
#define BPE_FIND_FIND_H

#include <stddef.h>
#include <stdint.h>

enum {
    FEW = 4,                   /* characters that can be searched for many at a time */
    START_SLOTS = 1 << 10,     /* of the table of first characters */
    MAX_FIND_LENGTH = 1 << 28, /* characters of all strings */
};

#define NO_STRING UINT32_MAX

/* What the automaton has read, backward: the end of some string. */
struct ending {
    uint32_t shorter;   /* the longest other ending that this one begins with */
    uint32_t longest;   /* the longest string that this one begins with, or NO_STRING */
    uint32_t character; /* one that can come before it; usually the only one */
    uint32_t next;      /* the ending with that in front, or 0 */
};

/* From an ending to another one that has one more character in front. */
struct edge {
    uint64_t key; /* 0: none */
    uint32_t ending;
};

/* Some characters, if they are few. */
struct few {
    uint32_t items[FEW];
    unsigned n; /* above FEW: there are more than these */
};

struct finder {
    uint64_t seed;
    uint32_t n_strings;
    uint32_t *lengths;   /* of each string, in characters */
    uint32_t shortest;   /* of these */
    struct few firsts;   /* characters of strings */
    struct few seconds;  /* too many, if a string has one character */
    uint8_t starts[START_SLOTS];
    uint8_t *pairs;      /* facts about two neighbors, by their hash */
    unsigned pair_shift;
    struct ending *endings; /* the first is empty */
    uint32_t n_endings;
    struct edge *edges;
    uint64_t edge_mask;
};

struct match {
    size_t start;
    uint32_t string; /* by its number */
};

struct matches {
    struct match *items;
    size_t n, room;
};

/* Prepare to find `n` strings, none of them empty, one after the other in `characters`.  All
 * lengths together are at most MAX_FIND_LENGTH.  Returns 0, or -1 if memory is short.  Release the
 * finder after either. */
int finder_open(struct finder *finder, const uint32_t *characters, const uint32_t *lengths,
                uint32_t n, uint64_t seed);
void finder_release(struct finder *finder);

/* Append the matches in text[start .. end), whose characters have `width` bytes: 1, 2 or 4.
 * Returns 0, or -1 if memory is short. */
int finder_find(const struct finder *finder, const void *text, int width, size_t start, size_t end,
                struct matches *matches);

#endif
