/* Learning merges, in the same steps and with the same results as `_MergeLearner` in Python.
 *
 * The most frequent pair becomes a token, which replaces the pair in every word.  A pair has a list
 * of the words where it was found when it came up; some may no longer contain it.  Merging changes
 * the counts of the pairs next to it: for a neighbor x before the pair (left, right), every
 * (x, left) becomes (x, merged).  So a merge first adds up how often it finds each neighbor; then
 * only a few counts change.
 *
 * No merge makes a token that already exists.  Suppose an earlier merge made the same bytes at some
 * other place.  No merge has crossed the ends of these bytes, at either place, so the text around
 * them had no effect.  So the same merges were applied at both places, and both became that token
 * at the same time.  That is true of words of bytes.  In words of tokens, the same bytes may be
 * other tokens elsewhere.  There, each new token is looked up, and learning ends with MADE_TWICE if
 * the token already exists; Python's learner handles such words.  It follows that
 * - a pair comes up in one merge only, the one that makes the younger of its parts.  That merge
 *   finds all its places, and from then on its count only falls;
 * - a pair that is too rare when it comes up can be forgotten immediately. */

#include <stdlib.h>
#include <string.h>

#include "train/learn.h"
#include "base/table.h"

#if defined(__GNUC__)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PREFETCH(p) __builtin_prefetch(p, 1)
#else
#define UNLIKELY(x) (x)
#define PREFETCH(p) ((void)(p))
#endif

#define NO_PLACE UINT32_MAX
#define NO_SYMBOL UINT32_MAX

/* Words with more bytes than this are not searched from end to end: each merge would take time
 * proportional to the longest word. */
#if !defined(LONG_WORD)
#define LONG_WORD 128
#endif

enum {
    WORDS_AHEAD = 10, /* words fetched ahead of their use */
    LINE_CELLS = 16,  /* in a line of the processor's cache */
    SIDE_OF_MERGED = 0,
    COST_OF_MERGE = 64, /* the rest of a merge takes as long as looking at this many symbols */
};

static inline size_t side_before(uint32_t symbol)
{
    return 2 * (size_t)symbol + 2;
}

static inline size_t side_after(uint32_t symbol)
{
    return 2 * (size_t)symbol + 3;
}

/* -- Memory ---------------------------------------------------------------------------------- */

/* Grow an array if it has no room for `needed` items.  Returns the array, or NULL. */
static void *grow(void *array, size_t *room, size_t needed, size_t size)
{
    if (*room >= needed)
        return array;
    if (needed > SIZE_MAX / size / 2)
        return NULL;
    size_t larger = needed + needed / 2;
    array = realloc(array, larger * size);
    if (array)
        *room = larger;
    return array;
}

/* Make room for one more token of `length` bytes, and for its counts as a neighbor. */
static int reserve_token(struct learner *l, size_t length)
{
    struct span *tokens = grow(l->tokens, &l->tokens_room, l->n_tokens + 1, sizeof *tokens);
    if (!tokens)
        return -1;
    l->tokens = tokens;
    struct learned_merge *merges =
        grow(l->merges, &l->merges_room, l->n_tokens + 1, sizeof *merges);
    if (!merges)
        return -1;
    l->merges = merges;
    struct wording *wordings =
        grow(l->wordings, &l->wordings_room, l->n_tokens + 1, sizeof *wordings);
    if (!wordings)
        return -1;
    l->wordings = wordings;
    if (length > UINT32_MAX || length > SIZE_MAX / 2 - l->bytes_used)
        return -1;
    uint8_t *bytes = grow(l->bytes, &l->bytes_room, l->bytes_used + length, 1);
    if (!bytes)
        return -1;
    l->bytes = bytes;
    size_t before = l->neighbors_room;
    struct neighbor *neighbors =
        grow(l->neighbors, &l->neighbors_room, 2 * l->n_tokens + 4, sizeof *neighbors);
    if (!neighbors)
        return -1;
    l->neighbors = neighbors;
    for (size_t i = before; i < l->neighbors_room; i++)
        neighbors[i] = (struct neighbor){0, 0, NO_PLACE, 0};
    return 0;
}

/* Make room for the sightings in one word of `length` symbols: at most one per symbol. */
static int reserve_sightings(struct learner *l, size_t length)
{
    size_t needed = l->n_sightings + length, room = l->sightings_room;
    if (room >= needed)
        return 0;
    struct sighting *sightings = grow(l->sightings, &room, needed, sizeof *sightings);
    if (!sightings)
        return -1;
    l->sightings = sightings;
    uint32_t *sides = realloc(l->sides, room * sizeof *sides);
    if (!sides)
        return -1;
    l->sides = sides;
    l->sightings_room = room; /* of both */
    return 0;
}

/* Add a token whose bytes come after those of all others. */
static void add_token(struct learner *l, struct span token, struct learned_merge merge,
                      struct wording wording)
{
    l->wordings[l->n_tokens] = wording;
    l->merges[l->n_tokens] = merge;
    l->tokens[l->n_tokens++] = token;
    l->bytes_used += token.length;
}

struct learner *learner_new(uint64_t seed, size_t n_cells)
{
    struct learner *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    byte_map_open(&l->forbidden, seed);
    byte_map_open(&l->known, seed);
    pair_heap_open(&l->heap);
    if (n_cells <= MOST_CELLS && n_cells <= SIZE_MAX / sizeof *l->cells - LINE_CELLS)
        l->cells = table_new((n_cells + LINE_CELLS) * sizeof *l->cells); /* a line may be fetched */
    l->long_start = n_cells + 1;
    if (!l->cells || pair_counts_open(&l->counts) < 0) {
        learner_free(l);
        return NULL;
    }
    return l;
}

void learner_free(struct learner *l)
{
    if (!l)
        return;
    byte_map_close(&l->forbidden);
    byte_map_close(&l->known);
    pair_heap_close(&l->heap);
    pair_counts_close(&l->counts);
    pair_counts_close(&l->lists);
    table_free(l->cells);
    free(l->refusal.never);
    free(l->refusal.bytes);
    free(l->longs);
    free(l->tokens);
    free(l->bytes);
    free(l->merges);
    free(l->wordings);
    free(l->neighbors);
    free(l->sides);
    free(l->sightings);
    free(l);
}

/* -- Refused tokens -------------------------------------------------------------------------- */

static bool has_bytes(const uint8_t *text, size_t size, const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i + length <= size; i++)
        if (!memcmp(text + i, bytes, length))
            return true;
    return false;
}

/* The wording of a token that no merge made: its number of words, and whether it is refused. */
static struct wording wording_of(const struct learner *l, const uint8_t *bytes, size_t length)
{
    struct wording wording = {0, false};
    bool after_space = true;
    for (size_t i = 0; i < length; after_space = bytes[i++] == ' ')
        wording.words += after_space && bytes[i] != ' ';
    for (size_t i = 0; i < l->refusal.n_never && !wording.refused; i++)
        wording.refused = has_bytes(bytes, length, l->refusal.bytes + l->refusal.never[i].at,
                                    l->refusal.never[i].length);
    wording.refused |= wording.words > l->refusal.max_words;
    return wording;
}

/* Whether a string begins in one token and ends in the one next to it. */
static bool joins_to(const struct learner *l, struct span left, struct span right,
                     struct span never)
{
    const uint8_t *wanted = l->refusal.bytes + never.at;
    const uint8_t *end = l->bytes + left.at + left.length, *begin = l->bytes + right.at;
    for (uint32_t n = 1; n < never.length && n <= left.length; n++)
        if (never.length - n <= right.length && !memcmp(end - n, wanted, n) &&
            !memcmp(begin, wanted + n, never.length - n))
            return true;
    return false;
}

/* Like wording_of, for two tokens that are joined. */
static struct wording joined_wording(const struct learner *l, uint32_t left, uint32_t right)
{
    struct span a = l->tokens[left], b = l->tokens[right];
    struct wording w = l->wordings[left], v = l->wordings[right];
    bool one_word = l->bytes[a.at + a.length - 1] != ' ' && l->bytes[b.at] != ' ';
    w.words += v.words - one_word;
    w.refused |= v.refused || w.words > l->refusal.max_words;
    for (size_t i = 0; i < l->refusal.n_never && !w.refused; i++)
        w.refused = joins_to(l, a, b, l->refusal.never[i]);
    return w;
}

static bool is_refused(const struct learner *l, uint32_t left, uint32_t right)
{
    return l->refuses && joined_wording(l, left, right).refused;
}

int learner_refuse(struct learner *l, const uint8_t *bytes, size_t length)
{
    struct refusal *r = &l->refusal;
    size_t used = r->n_never ? r->never[r->n_never - 1].at + r->never[r->n_never - 1].length : 0;
    struct span *never = realloc(r->never, (r->n_never + 1) * sizeof *never);
    if (!never)
        return -1;
    r->never = never;
    uint8_t *all = length > UINT32_MAX ? NULL : realloc(r->bytes, used + length);
    if (!all)
        return -1;
    r->bytes = all;
    memcpy(all + used, bytes, length);
    never[r->n_never++] = (struct span){used, (uint32_t)length, 0};
    return 0;
}

int learner_forbid(struct learner *l, const uint8_t *bytes, size_t length)
{
    if (!length)
        return 0;
    uint64_t *forbidden = byte_map_at(&l->forbidden, bytes, length);
    if (!forbidden)
        return -1;
    *forbidden = 1;
    return 0;
}

/* -- The first tokens ------------------------------------------------------------------------ */

static int add_base(struct learner *l, const uint8_t *bytes, size_t length)
{
    if (reserve_token(l, length) < 0)
        return -1;
    struct wording wording = {0, false};
    if (l->refuses)
        wording = wording_of(l, bytes, length);
    memcpy(l->bytes + l->bytes_used, bytes, length);
    add_token(l, (struct span){l->bytes_used, (uint32_t)length, 1}, (struct learned_merge){0, 0},
              wording);
    l->n_base = l->n_tokens;
    return 0;
}

int learner_add_bytes(struct learner *l, const uint8_t alphabet[256])
{
    for (uint32_t number = 0; number < BASE_TOKENS; number++) {
        l->symbols[alphabet[number]] = number;
        if (add_base(l, &alphabet[number], 1) < 0)
            return -1;
    }
    return 0;
}

int learner_add_token(struct learner *l, const uint8_t *bytes, size_t length)
{
    uint64_t *known = byte_map_at(&l->known, bytes, length);
    if (!known)
        return -1;
    *known = 1;
    l->may_repeat = true;
    return add_base(l, bytes, length);
}

/* -- Words ----------------------------------------------------------------------------------- */

static inline int64_t count_of_word(const uint32_t *word)
{
    int64_t count;
    memcpy(&count, word, sizeof count);
    return count;
}

/* Make room for a long word, and return where its symbols go; NULL if memory is short.  The room
 * reserved for its header, which a long word doesn't have, gives the NO_SYMBOL cells around it. */
static uint32_t *add_long(struct learner *l, size_t length, int64_t count)
{
    struct long_word *longs = grow(l->longs, &l->longs_room, l->n_longs + 1, sizeof *longs);
    if (!longs)
        return NULL;
    l->longs = longs;
    l->cells[--l->long_start] = NO_SYMBOL;
    l->long_start -= length;
    l->cells[l->long_start - 1] = NO_SYMBOL; /* may become that of the next */
    longs[l->n_longs++] = (struct long_word){(uint32_t)l->long_start, (uint32_t)length, count};
    return l->cells + l->long_start;
}

static uint32_t *add_word(struct learner *l, size_t length, int64_t count)
{
    if (length > LONG_WORD)
        return add_long(l, length, count);
    uint32_t *word = l->cells + l->n_cells;
    memcpy(word, &count, sizeof count);
    word[WORD_LENGTH] = word[WORD_ROOM] = (uint32_t)length;
    l->n_cells += WORD_HEADER + length;
    return word + WORD_HEADER;
}

int learner_add(struct learner *l, const uint8_t *bytes, size_t length, int64_t count)
{
    uint32_t *symbols = add_word(l, length, count);
    for (size_t i = 0; symbols && i < length; i++)
        symbols[i] = l->symbols[bytes[i]];
    return symbols ? 0 : -1;
}

int learner_add_symbols(struct learner *l, const uint32_t *symbols, size_t length, int64_t count)
{
    uint32_t *word = add_word(l, length, count);
    if (word)
        memcpy(word, symbols, length * sizeof *word);
    return word ? 0 : -1;
}

/* -- The first pairs ------------------------------------------------------------------------- */

/* The pairs of first tokens, counted as a merge counts its neighbors.  Each pair of bytes has a
 * fixed place; other pairs get one when they first occur, and `numbers` maps pairs to places. */
struct first_pair {
    struct neighbor sum;
    uint64_t pair;
};

struct first_pairs {
    struct first_pair *items;
    size_t n, room;
    bool of_bytes;
    struct pair_counts numbers;
};

static int open_first_pairs(struct first_pairs *pairs, bool of_bytes)
{
    *pairs = (struct first_pairs){.of_bytes = of_bytes};
    if (!of_bytes)
        return pair_counts_open(&pairs->numbers);
    pairs->n = pairs->room = BASE_TOKENS * BASE_TOKENS;
    pairs->items = calloc(pairs->n, sizeof *pairs->items);
    for (uint32_t i = 0; pairs->items && i < pairs->n; i++) {
        pairs->items[i].pair = make_pair(i / BASE_TOKENS, i % BASE_TOKENS);
        pairs->items[i].sum.last = NO_PLACE;
    }
    return pairs->items ? 0 : -1;
}

static void close_first_pairs(struct first_pairs *pairs)
{
    pair_counts_close(&pairs->numbers);
    free(pairs->items);
}

/* The entry of a pair of symbols that was counted before. */
static inline struct neighbor *first_pair(const struct first_pairs *pairs,
                                          const uint32_t *symbols)
{
    if (pairs->of_bytes)
        return &pairs->items[symbols[0] * BASE_TOKENS + symbols[1]].sum;
    uint64_t pair = make_pair(symbols[0], symbols[1]);
    return &pairs->items[find_pair(&pairs->numbers, pair)->count].sum;
}

/* The same for a pair that may be new.  NULL if memory is short. */
static inline struct neighbor *new_first_pair(struct first_pairs *pairs, const uint32_t *symbols)
{
    if (pairs->of_bytes)
        return first_pair(pairs, symbols);
    uint64_t pair = make_pair(symbols[0], symbols[1]);
    const struct pair_count *number = find_pair(&pairs->numbers, pair);
    if (number->pair_and_1)
        return &pairs->items[number->count].sum;
    struct first_pair *items = grow(pairs->items, &pairs->room, pairs->n + 1, sizeof *items);
    if (!items)
        return NULL;
    pairs->items = items;
    if (pair_counts_reserve(&pairs->numbers, 1) < 0)
        return NULL;
    *count_of_pair(&pairs->numbers, pair) = (int64_t)pairs->n;
    items[pairs->n] = (struct first_pair){{0, 0, NO_PLACE, 0}, pair};
    return &items[pairs->n++].sum;
}

/* Add up the counts of all pairs, and the number of words each is in.  Returns 0, or -1 if memory
 * is short. */
static int count_first_pairs(const struct learner *l, struct first_pairs *pairs)
{
    for (size_t place = 0; place < l->n_cells;) {
        const uint32_t *word = l->cells + place, *symbols = word + WORD_HEADER;
        uint32_t length = word[WORD_LENGTH];
        int64_t count = count_of_word(word);
        for (uint32_t i = 0; i + 1 < length; i++) {
            struct neighbor *pair = new_first_pair(pairs, symbols + i);
            if (!pair)
                return -1;
            pair->count += count;
            pair->n_places += pair->last != place;
            pair->last = (uint32_t)place;
        }
        place += WORD_HEADER + length;
    }
    for (size_t i = 0; i < l->n_longs; i++)
        for (uint32_t at = 0; at + 1 < l->longs[i].length; at++) {
            struct neighbor *pair = new_first_pair(pairs, l->cells + l->longs[i].start + at);
            if (!pair)
                return -1;
            pair->count += l->longs[i].count;
            pair->n_places++;
        }
    return 0;
}

/* Drop the places of pairs that are refused or rarer than min_frequency.  Returns the number of
 * places of all pairs that have more than one. */
static size_t drop_first_pairs(const struct learner *l, struct first_pairs *pairs)
{
    size_t n_places = 0;
    for (size_t i = 0; i < pairs->n; i++) {
        struct neighbor *pair = &pairs->items[i].sum;
        uint32_t left = left_of(pairs->items[i].pair), right = right_of(pairs->items[i].pair);
        if (pair->count < l->min_frequency || (pair->n_places && is_refused(l, left, right)))
            pair->n_places = 0;
        n_places += pair->n_places > 1 ? pair->n_places : 0;
    }
    return n_places;
}

/* Place a list in the heap's room, which must be large enough.  If pairs are listed, the list's
 * length comes before it. */
static void place_list(struct learner *l, struct neighbor *neighbor)
{
    struct pair_heap *heap = &l->heap;
    if (neighbor->n_places > 1 && l->lists_pairs)
        heap->places[heap->used++] = neighbor->n_places;
    neighbor->places = heap->used;
    if (neighbor->n_places > 1)
        heap->used += neighbor->n_places;
}

/* Append a place to a list that has its room; `places` is then where the next one goes.  A single
 * place needs no list: it is kept in `places` itself. */
static inline void append_place(struct pair_heap *heap, struct neighbor *neighbor, uint32_t place)
{
    if (neighbor->n_places > 1)
        heap->places[neighbor->places++] = place;
    else
        neighbor->places = place;
}

/* Record where a pair is: the index of its list, plus 1; or its only place, negated, minus 1. */
static void list_pair(struct learner *l, uint64_t pair, uint64_t first, uint32_t n)
{
    *count_of_pair(&l->lists, pair) = n > 1 ? (int64_t)first + 1 : -(int64_t)first - 1;
}

/* Take the list of a pair's places.  The entry has no places if the pair never occurred. */
static struct pair_entry listed_pair(struct learner *l, uint64_t pair)
{
    struct pair_entry entry = {0, pair, 0, 0};
    struct pair_count *list = find_pair(&l->lists, pair);
    if (!list->pair_and_1 || !list->count)
        return entry;
    bool is_single = list->count < 0;
    entry.places = (uint64_t)(is_single ? -(list->count + 1) : list->count - 1);
    entry.n_places = is_single ? 1 : l->heap.places[entry.places - 1];
    list->count = 0;
    return entry;
}

/* Make room for `n` new pairs with `n_places` places in total. */
static int reserve_pairs(struct learner *l, size_t n, size_t n_places)
{
    if (pair_counts_reserve(&l->counts, n) < 0)
        return -1;
    if (!l->lists_pairs)
        return pair_heap_reserve(&l->heap, n, n_places);
    return pair_counts_reserve(&l->lists, n) < 0 ? -1 : pair_heap_reserve(&l->heap, n, n_places + n);
}

/* Add a pair with a complete list to the counts and the heap. */
static void add_pair(struct learner *l, const struct neighbor *neighbor, uint64_t pair)
{
    uint32_t n = neighbor->n_places;
    uint64_t first = neighbor->places - (n > 1 ? n : 0);
    *count_of_pair(&l->counts, pair) = neighbor->count;
    if (l->lists_pairs) {
        list_pair(l, pair, first, n);
        first = n = 0; /* the heap must not move the places */
    }
    pair_heap_push(&l->heap, (struct pair_entry){neighbor->count, pair, first, n});
}

static void list_first_pairs(struct learner *l, struct first_pairs *pairs)
{
    for (size_t i = 0; i < pairs->n; i++) {
        place_list(l, &pairs->items[i].sum);
        pairs->items[i].sum.last = NO_PLACE;
    }
    for (size_t place = 0; place < l->n_cells;) {
        const uint32_t *word = l->cells + place, *symbols = word + WORD_HEADER;
        uint32_t length = word[WORD_LENGTH];
        for (uint32_t i = 0; i + 1 < length; i++) {
            struct neighbor *pair = first_pair(pairs, symbols + i);
            if (pair->last == place)
                continue;
            pair->last = (uint32_t)place;
            append_place(&l->heap, pair, (uint32_t)place);
        }
        place += WORD_HEADER + length;
    }
    for (size_t i = l->n_longs; i-- > 0;) /* by rising place */
        for (uint32_t at = 0; at + 1 < l->longs[i].length; at++) {
            uint32_t place = l->longs[i].start + at;
            append_place(&l->heap, first_pair(pairs, l->cells + place), place);
        }
}

static int start_with(struct learner *l, struct first_pairs *pairs)
{
    if (count_first_pairs(l, pairs) < 0)
        return -1;
    size_t n_places = drop_first_pairs(l, pairs);
    if (reserve_pairs(l, pairs->n, n_places) < 0)
        return -1;
    list_first_pairs(l, pairs);
    for (size_t i = 0; i < pairs->n; i++)
        if (pairs->items[i].sum.n_places)
            add_pair(l, &pairs->items[i].sum, pairs->items[i].pair);
    return 0;
}

int learner_start(struct learner *l)
{
    struct first_pairs pairs;
    int status = open_first_pairs(&pairs, l->n_base <= BASE_TOKENS);
    if (status == 0)
        status = start_with(l, &pairs);
    close_first_pairs(&pairs);
    return status;
}

/* -- One merge in one word ------------------------------------------------------------------- */

struct merging {
    uint32_t left, right, merged;
};

static inline void see(struct learner *l, size_t side, uint32_t place, int64_t count)
{
    struct neighbor *neighbor = &l->neighbors[side];
    neighbor->count += count;
    if (neighbor->last == place)
        return;
    neighbor->last = place;
    if (neighbor->n_places++ == 0)
        l->sides[l->n_sides++] = (uint32_t)side;
    l->sightings[l->n_sightings++] = (struct sighting){(uint32_t)side, place};
}

/* Merge a pair in a word, from left to right, and count its neighbors. */
static void merge_in_word(struct learner *l, struct merging m, uint32_t place)
{
    uint32_t *word = l->cells + place, *symbols = word + WORD_HEADER;
    const uint32_t length = word[WORD_LENGTH];
    uint32_t in = 0, out;
    while (in + 1 < length && (symbols[in] != m.left || symbols[in + 1] != m.right))
        in++;
    if (in + 1 >= length)
        return; /* an earlier merge changed it */
    const int64_t count = count_of_word(word);
    bool behind_one = false; /* the symbol before was just merged */
    for (out = in; in < length;) {
        if (in + 1 == length || symbols[in] != m.left || symbols[in + 1] != m.right) {
            if (behind_one)
                see(l, side_after(symbols[in]), place, count);
            behind_one = false;
            symbols[out++] = symbols[in++];
            continue;
        }
        if (behind_one) {
            see(l, SIDE_OF_MERGED, place, count);
        } else if (out) {
            see(l, side_before(symbols[out - 1]), place, count);
        }
        symbols[out++] = m.merged;
        l->joined += count;
        in += 2;
        behind_one = true;
    }
    word[WORD_LENGTH] = out;
}

/* -- One merge at one place of a long word --------------------------------------------------- */

/* The count of the long word that contains a place. */
static int64_t count_at(const struct learner *l, uint32_t place)
{
    size_t first = 0, end = l->n_longs; /* it is among these; their starts fall */
    while (end - first > 1) {
        size_t middle = first + (end - first) / 2;
        if (l->longs[middle - 1].start > place)
            first = middle;
        else
            end = middle;
    }
    return l->longs[first].count;
}

/* Merge a pair at a place where it came up, and count its neighbors.
 *
 * NOTE: places come in rising order.  So the left one of two overlapping pairs is merged, and if
 * the same pair follows directly, it is merged next.
 * INVARIANT: if a token began at a cell that is now inside another token, that cell contains no
 * symbol, or it is the last cell of a token larger than any that began there.  So a pair's left
 * symbol is only found where the pair begins. */
static void merge_at(struct learner *l, struct merging m, uint32_t place)
{
    uint32_t *cells = l->cells;
    const size_t left_width = l->tokens[m.left].width, right_width = l->tokens[m.right].width;
    const size_t right = place + left_width, end = right + right_width;
    if (cells[place] != m.left || cells[right] != m.right)
        return; /* an earlier merge changed it */
    const int64_t count = count_at(l, place);
    const uint32_t before = cells[place - 1], after = cells[end];
    if (before == m.merged)
        see(l, SIDE_OF_MERGED, (uint32_t)(place - left_width - right_width), count);
    else if (before != NO_SYMBOL)
        see(l, side_before(before), (uint32_t)(place - l->tokens[before].width), count);
    if (after != NO_SYMBOL && (after != m.left || cells[end + left_width] != m.right))
        see(l, side_after(after), place, count);
    cells[right - 1] = cells[right] = NO_SYMBOL;
    cells[place] = cells[end - 1] = m.merged;
    l->joined += count;
}

/* -- One merge ------------------------------------------------------------------------------- */

static int merge_in_words(struct learner *l, struct merging m, const struct pair_entry *entry)
{
    uint32_t single;
    const uint32_t *places = places_of(&l->heap, entry, &single);
    for (uint32_t i = 0; i < entry->n_places; i++) {
        if (i + WORDS_AHEAD < entry->n_places) {
            const uint32_t *ahead = l->cells + places[i + WORDS_AHEAD];
            PREFETCH(ahead);
            PREFETCH(ahead + LINE_CELLS); /* most words take less than two cache lines */
        }
        bool is_long = places[i] >= l->long_start;
        size_t length = is_long ? 2 : l->cells[places[i] + WORD_LENGTH];
        if (reserve_sightings(l, length) < 0)
            return -1;
        l->looked_at += length;
        if (UNLIKELY(is_long))
            merge_at(l, m, places[i]);
        else
            merge_in_word(l, m, places[i]);
    }
    return 0;
}

/* The pair that a neighbor makes with the new token, and the pair that it made before with a part
 * of the merged pair. */
static uint64_t new_pair(struct merging m, uint32_t side)
{
    uint32_t symbol = side / 2 - 1;
    if (side == SIDE_OF_MERGED)
        return make_pair(m.merged, m.merged);
    return side % 2 ? make_pair(m.merged, symbol) : make_pair(symbol, m.merged);
}

static uint64_t old_pair(struct merging m, uint32_t side)
{
    uint32_t symbol = side / 2 - 1;
    if (side == SIDE_OF_MERGED)
        return make_pair(m.right, m.left);
    return side % 2 ? make_pair(m.right, symbol) : make_pair(symbol, m.left);
}

/* Whether the pair of a neighbor and the new token may be merged later. */
static bool makes_pair(const struct learner *l, struct merging m, uint32_t side)
{
    uint32_t symbol = side == SIDE_OF_MERGED ? m.merged : side / 2 - 1;
    uint64_t length = (uint64_t)l->tokens[symbol].length + l->tokens[m.merged].length;
    uint64_t pair = new_pair(m, side);
    return l->neighbors[side].count >= l->min_frequency && length < l->limit &&
           !is_refused(l, left_of(pair), right_of(pair));
}

/* Lower the count of a pair.  One that was too rare, too long or refused has no count. */
static void lose(struct learner *l, uint64_t pair, int64_t count)
{
    struct pair_count *entry = find_pair(&l->counts, pair);
    if (entry->pair_and_1)
        entry->count -= count;
}

static void fetch_counts(const struct learner *l, struct merging m)
{
    for (size_t i = 0; i < l->n_sides; i++) {
        PREFETCH(pair_place(&l->counts, old_pair(m, l->sides[i])));
        PREFETCH(pair_place(&l->counts, new_pair(m, l->sides[i])));
    }
}

/* Collect the places of each new pair. */
static void list_places(struct learner *l, struct merging m)
{
    for (size_t i = 0; i < l->n_sides; i++) {
        struct neighbor *neighbor = &l->neighbors[l->sides[i]];
        if (!makes_pair(l, m, l->sides[i]))
            neighbor->n_places = 0;
        place_list(l, neighbor);
    }
    for (size_t i = 0; i < l->n_sightings; i++)
        append_place(&l->heap, &l->neighbors[l->sightings[i].side], l->sightings[i].place);
}

static void change_pairs(struct learner *l, struct merging m)
{
    for (size_t i = 0; i < l->n_sides; i++) {
        struct neighbor *neighbor = &l->neighbors[l->sides[i]];
        lose(l, old_pair(m, l->sides[i]), neighbor->count);
        if (neighbor->n_places)
            add_pair(l, neighbor, new_pair(m, l->sides[i]));
        *neighbor = (struct neighbor){0, 0, NO_PLACE, 0};
    }
}

/* Merge a pair in all words where it came up; update counts and heap. */
static int merge_pair(struct learner *l, struct merging m, const struct pair_entry *entry)
{
    l->n_sides = l->n_sightings = 0;
    if (merge_in_words(l, m, entry) < 0)
        return -1;
    /* The entry's places are done with. */
    if (reserve_pairs(l, l->n_sides, l->n_sightings) < 0)
        return -1;
    fetch_counts(l, m);
    list_places(l, m);
    change_pairs(l, m);
    return 0;
}

/* -- Learning -------------------------------------------------------------------------------- */

/* Bring the most frequent pair to the top of the heap.  Returns false if no pair is left. */
static bool settle_first(struct learner *l)
{
    while (l->heap.n) {
        const struct pair_entry *first = l->heap.entries;
        int64_t count = find_pair(&l->counts, first->pair)->count;
        if (count <= 0)
            pair_heap_pop(&l->heap);
        else if (count != first->count)
            pair_heap_recount_first(&l->heap, count);
        else
            return true;
    }
    return false;
}

/* Remove the most frequent pair from the heap.  Returns false if no pair is left. */
static bool pop_pair(struct learner *l, struct pair_entry *entry)
{
    if (!settle_first(l))
        return false;
    *entry = pair_heap_pop(&l->heap);
    return true;
}

/* Append the joined bytes of two tokens to the bytes of all tokens. */
static int join_bytes(struct learner *l, struct merging m, struct span *joined)
{
    struct span left = l->tokens[m.left], right = l->tokens[m.right];
    size_t length = (size_t)left.length + right.length;
    if (reserve_token(l, length) < 0)
        return -1;
    *joined = (struct span){l->bytes_used, (uint32_t)length, left.width + right.width};
    memcpy(l->bytes + joined->at, l->bytes + left.at, left.length);
    memcpy(l->bytes + joined->at + left.length, l->bytes + right.at, right.length);
    return 0;
}

static bool is_forbidden(const struct learner *l, struct span token)
{
    return byte_map_get(&l->forbidden, l->bytes + token.at, token.length) != 0;
}

/* Record that a token exists.  Returns LEARNING if it is new. */
static enum learning note_token(struct learner *l, struct span token)
{
    uint64_t *known = byte_map_at(&l->known, l->bytes + token.at, token.length);
    if (!known)
        return NO_MEMORY;
    return (*known)++ ? MADE_TWICE : LEARNING;
}

static enum learning learn_pair(struct learner *l, const struct pair_entry *entry)
{
    struct merging m = {left_of(entry->pair), right_of(entry->pair), (uint32_t)l->n_tokens};
    struct span joined;
    if (join_bytes(l, m, &joined) < 0)
        return NO_MEMORY;
    if (is_forbidden(l, joined))
        return LEARNING;
    enum learning state = l->may_repeat ? note_token(l, joined) : LEARNING;
    if (state != LEARNING)
        return state;
    struct wording wording = {0, false};
    if (l->refuses)
        wording = joined_wording(l, m.left, m.right);
    add_token(l, joined, (struct learned_merge){entry->pair, entry->count}, wording);
    return merge_pair(l, m, entry) < 0 ? NO_MEMORY : LEARNING;
}

/* Whether two adjacent symbols in a word are a pair that was too rare for the heap.  Pairs that
 * were in the heap have a count; others were too rare, or refused, or would make a token that is
 * too long. */
static bool is_rare_pair(const struct learner *l, uint32_t left, uint32_t right)
{
    if (find_pair(&l->counts, make_pair(left, right))->pair_and_1)
        return false;
    uint64_t length = (uint64_t)l->tokens[left].length + l->tokens[right].length;
    bool are_first = left < l->n_base && right < l->n_base;
    return (are_first || length < l->limit) && !is_refused(l, left, right);
}

static bool has_rare_pair(const struct learner *l, const uint32_t *word)
{
    const uint32_t *symbols = word + WORD_HEADER;
    for (uint32_t i = 0; i + 1 < word[WORD_LENGTH]; i++)
        if (is_rare_pair(l, symbols[i], symbols[i + 1]))
            return true;
    return false;
}

static bool has_rare_pair_in_long(const struct learner *l, const struct long_word *word)
{
    size_t at = word->start, next;
    for (; l->cells[next = at + l->tokens[l->cells[at]].width] != NO_SYMBOL; at = next)
        if (is_rare_pair(l, l->cells[at], l->cells[next]))
            return true;
    return false;
}

/* When no pair is left in the heap: TOO_RARE if the words still contain a pair that was too rare,
 * else NO_PAIRS. */
static enum learning why_none_is_left(const struct learner *l)
{
    for (size_t place = 0; place < l->n_cells; place += WORD_HEADER + l->cells[place + WORD_ROOM])
        if (has_rare_pair(l, l->cells + place))
            return TOO_RARE;
    for (size_t i = 0; i < l->n_longs; i++)
        if (has_rare_pair_in_long(l, &l->longs[i]))
            return TOO_RARE;
    return NO_PAIRS;
}

enum learning learner_learn(struct learner *l, size_t symbols)
{
    struct pair_entry entry;
    enum learning state;
    for (l->looked_at = 0; l->looked_at < symbols; l->looked_at += COST_OF_MERGE) {
        if (l->n_tokens - l->n_base >= l->wanted)
            return ENOUGH_TOKENS;
        if (!pop_pair(l, &entry))
            return why_none_is_left(l);
        if (entry.count < l->min_frequency)
            return TOO_RARE;
        if ((state = learn_pair(l, &entry)) != LEARNING)
            return state;
    }
    return LEARNING;
}

/* -- Pairs that a caller chooses ------------------------------------------------------------- */

int learner_list_pairs(struct learner *l)
{
    l->lists_pairs = true;
    return pair_counts_open(&l->lists);
}

bool learner_best(struct learner *l, uint64_t *pair, int64_t *count)
{
    if (!settle_first(l))
        return false;
    *pair = l->heap.entries[0].pair;
    *count = l->heap.entries[0].count;
    return true;
}

void learner_drop_best(struct learner *l)
{
    pair_heap_pop(&l->heap);
}

int learner_join(struct learner *l, uint64_t pair)
{
    struct merging m = {left_of(pair), right_of(pair), (uint32_t)l->n_tokens};
    struct span joined;
    if (join_bytes(l, m, &joined) < 0)
        return -1;
    add_token(l, joined, (struct learned_merge){pair, 0}, (struct wording){0, false});
    struct pair_entry entry = listed_pair(l, pair);
    if (entry.n_places && merge_pair(l, m, &entry) < 0)
        return -1;
    struct pair_count *count = find_pair(&l->counts, pair);
    if (count->pair_and_1)
        count->count = 0; /* so that the heap drops it */
    return 0;
}
