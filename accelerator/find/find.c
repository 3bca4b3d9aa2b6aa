/* Finding any of many strings: the automaton, and the tables that spare its use. */

#include "find/find.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/table.h"
#include "scan/scan.h"

enum {
    BEGINS = 1, /* a longer string begins with this character, or with these two */
    ALONE = 2,  /* this character is a string */
    INSIDE = 2, /* these two are neighbors in a string */
    STRIDE = 64,
    CHARACTER_BITS = 21,
    LEAST_PAIR_BITS = 10,
    MOST_PAIR_BITS = 20,
    LEAST_ROOM = 64, /* for matches */
};

#define NO_CHARACTER UINT32_MAX

static inline uint8_t *start_slot(const struct finder *finder, uint32_t character)
{
    return (uint8_t *)&finder->starts[character % START_SLOTS];
}

/* Two pairs may share a slot: then some text is searched for nothing. */
static inline uint8_t *pair_slot(const struct finder *finder, uint32_t left, uint32_t right)
{
    uint64_t pair = (uint64_t)left << CHARACTER_BITS | right;
    return &finder->pairs[pair * HASH_FACTOR >> finder->pair_shift];
}

/* -- The automaton --------------------------------------------------------------------------- */

/* The place of an edge, or where it would be. */
static inline struct edge *edge_of(const struct finder *finder, uint32_t ending, uint32_t character)
{
    uint64_t key = ((uint64_t)ending << CHARACTER_BITS | character) + 1;
    uint64_t at = fold_product(key ^ finder->seed, HASH_FACTOR);
    struct edge *edge;
    while ((edge = &finder->edges[at & finder->edge_mask])->key && edge->key != key)
        at++;
    return edge;
}

/* The ending after one more character: 0, the empty one, if no string goes on so. */
static inline uint32_t step(const struct finder *finder, uint32_t ending, uint32_t character)
{
    for (;;) {
        const struct ending *own = &finder->endings[ending];
        if (own->character == character)
            return own->next;
        uint32_t next = edge_of(finder, ending, character)->ending;
        if (next || !ending)
            return next;
        ending = own->shorter;
    }
}

/* The origin of an ending: facts only needed while all of them are made. */
struct origin {
    uint32_t tail;      /* the ending without its first character */
    uint32_t character; /* that */
    uint32_t length;
};

/* The ending with one more character in front; it is made if it doesn't exist yet. */
static uint32_t longer_ending(struct finder *finder, uint32_t ending, uint32_t character,
                              struct origin *origins)
{
    struct ending *own = &finder->endings[ending];
    if (own->next && own->character == character)
        return own->next;
    struct edge *edge = own->next ? edge_of(finder, ending, character) : NULL;
    if (edge && edge->key)
        return edge->ending;
    uint32_t made = finder->n_endings++;
    finder->endings[made] = (struct ending){0, NO_STRING, NO_CHARACTER, 0};
    origins[made] = (struct origin){ending, character, origins[ending].length + 1};
    if (edge)
        *edge = (struct edge){((uint64_t)ending << CHARACTER_BITS | character) + 1, made};
    else {
        own->character = character;
        own->next = made;
    }
    return made;
}

static void add_character(struct few *few, uint32_t character)
{
    for (unsigned i = 0; i < FEW && i < few->n; i++)
        if (few->items[i] == character)
            return;
    if (few->n < FEW)
        few->items[few->n++] = character;
    else
        few->n = FEW + 1;
}

/* Add the endings of a string, and its facts about places where strings begin. */
static void add_string(struct finder *finder, const uint32_t *characters, uint32_t length,
                       uint32_t number, struct origin *origins)
{
    uint32_t ending = 0;
    for (uint32_t i = length; i-- > 0;) {
        ending = longer_ending(finder, ending, characters[i], origins);
        if (i > 0)
            *pair_slot(finder, characters[i - 1], characters[i]) |= i == 1 ? INSIDE | BEGINS : INSIDE;
    }
    finder->endings[ending].longest = number;
    *start_slot(finder, characters[0]) |= length == 1 ? ALONE : BEGINS;
    add_character(&finder->firsts, characters[0]);
    if (length > 1)
        add_character(&finder->seconds, characters[1]);
    else
        finder->seconds.n = FEW + 1;
    finder->shortest = length < finder->shortest ? length : finder->shortest;
}

/* Find the shorter ending of each, the short ones first: each needs that of its tail. */
static void link_endings(struct finder *finder, const struct origin *origins, uint32_t *order)
{
    for (uint32_t i = 0; i < finder->n_endings - 1; i++) {
        uint32_t ending = order[i];
        struct ending *own = &finder->endings[ending];
        const struct origin *origin = &origins[ending];
        if (origin->tail) {
            uint32_t shorter = finder->endings[origin->tail].shorter;
            own->shorter = step(finder, shorter, origin->character);
        }
        if (own->longest == NO_STRING)
            own->longest = finder->endings[own->shorter].longest;
    }
}

/* Sort all endings but the empty one by length: count, then place. */
static void sort_endings(uint32_t n_endings, const struct origin *origins, uint32_t *places,
                         uint32_t longest, uint32_t *order)
{
    memset(places, 0, (longest + (size_t)2) * sizeof *places);
    for (uint32_t ending = 1; ending < n_endings; ending++)
        places[origins[ending].length + 1]++;
    for (uint32_t length = 1; length <= longest; length++)
        places[length + 1] += places[length];
    for (uint32_t ending = 1; ending < n_endings; ending++)
        order[places[origins[ending].length]++] = ending;
}

/* Make the automaton.  Returns 0, or -1 if memory is short. */
static int add_strings(struct finder *finder, const uint32_t *characters, size_t total)
{
    uint32_t longest = 0;
    struct origin *origins = malloc((total + 1) * sizeof *origins);
    uint32_t *order = malloc((total + 1) * sizeof *order);
    uint32_t *places = malloc((total + 2) * sizeof *places);
    if (origins && order && places) {
        origins[0].length = 0;
        for (uint32_t i = 0; i < finder->n_strings; i++) {
            uint32_t length = finder->lengths[i];
            add_string(finder, characters, length, i, origins);
            characters += length;
            longest = length > longest ? length : longest;
        }
        sort_endings(finder->n_endings, origins, places, longest, order);
        link_endings(finder, origins, order);
    }
    int status = origins && order && places ? 0 : -1;
    free(origins);
    free(order);
    free(places);
    return status;
}

int finder_open(struct finder *finder, const uint32_t *characters, const uint32_t *lengths,
                uint32_t n, uint64_t seed)
{
    size_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += lengths[i];
    unsigned edge_bits = 4, pair_bits = LEAST_PAIR_BITS;
    while ((total + 1) * 2 > (size_t)1 << edge_bits)
        edge_bits++;
    while (pair_bits < MOST_PAIR_BITS && total * 8 > (size_t)1 << pair_bits)
        pair_bits++;
    memset(finder, 0, sizeof *finder);
    finder->seed = seed;
    finder->n_strings = n;
    finder->shortest = UINT32_MAX;
    finder->edge_mask = ((uint64_t)1 << edge_bits) - 1;
    finder->pair_shift = 64 - pair_bits;
    finder->n_endings = 1;
    finder->lengths = malloc((n + (size_t)1) * sizeof *lengths);
    finder->pairs = calloc((size_t)1 << pair_bits, 1);
    finder->edges = table_new(sizeof *finder->edges << edge_bits);
    finder->endings = malloc((total + 1) * sizeof *finder->endings);
    if (!finder->lengths || !finder->pairs || !finder->edges || !finder->endings)
        return -1;
    if (n)
        memcpy(finder->lengths, lengths, n * sizeof *lengths);
    finder->endings[0] = (struct ending){0, NO_STRING, NO_CHARACTER, 0};
    return add_strings(finder, characters, total);
}

void finder_release(struct finder *finder)
{
    free(finder->lengths);
    free(finder->pairs);
    table_free(finder->edges);
    free(finder->endings);
    memset(finder, 0, sizeof *finder);
}

/* -- Matches --------------------------------------------------------------------------------- */

static int add_match(struct matches *matches, size_t start, uint32_t string)
{
    if (matches->n == matches->room) {
        size_t room = matches->room ? matches->room * 2 : LEAST_ROOM;
        struct match *items = room > SIZE_MAX / sizeof *items
                                  ? NULL
                                  : realloc(matches->items, room * sizeof *items);
        if (!items)
            return -1;
        matches->items = items;
        matches->room = room;
    }
    matches->items[matches->n++] = (struct match){start, string};
    return 0;
}

/* The last of the matches from `first` on begins leftmost.  Reverse them, and keep those that begin
 * after the end of the one before. */
static void keep_leftmost(const struct finder *finder, struct matches *matches, size_t first)
{
    struct match *items = matches->items;
    for (size_t i = first, j = matches->n; i + 1 < j; i++) {
        struct match other = items[--j];
        items[j] = items[i];
        items[i] = other;
    }
    size_t kept = first, done = 0;
    for (size_t i = first; i < matches->n; i++)
        if (items[i].start >= done) {
            done = items[i].start + finder->lengths[items[i].string];
            items[kept++] = items[i];
        }
    matches->n = kept;
}

/* -- Text ------------------------------------------------------------------------------------ */

#define UNIT uint8_t
#define OF_UNIT(name) name##_1
#include "find/find_template.h"
#undef UNIT
#undef OF_UNIT

#define UNIT uint16_t
#define OF_UNIT(name) name##_2
#include "find/find_template.h"
#undef UNIT
#undef OF_UNIT

#define UNIT uint32_t
#define OF_UNIT(name) name##_4
#include "find/find_template.h"
#undef UNIT
#undef OF_UNIT

int finder_find(const struct finder *finder, const void *text, int width, size_t start, size_t end,
                struct matches *matches)
{
    if (!finder->n_strings)
        return 0;
    switch (width) {
    case 1:
        return find_1(finder, text, start, end, matches);
    case 2:
        return find_2(finder, text, start, end, matches);
    default:
        return find_4(finder, text, start, end, matches);
    }
}
