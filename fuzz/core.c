/* Runs the core of the engine in C, without Python, on what libFuzzer makes up.
 *
 * The first byte of an input says what is tried: see `trials`.  What comes out is compared with a
 * simpler way to get it, and the sanitizers watch every access to memory.  Text ends where its
 * memory does.  README.md has the command. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encode/dropout.h"
#include "encode/encode.h"
#include "encode/image.c" /* whole: a changed image needs its checksum */
#include "encode/ranks.h"
#include "find/find.h"
#include "scan/automaton.h"
#include "scan/normal.h"
#include "train/count.h"
#include "train/learn.h"

enum {
    MOST_TEXT = 4096,
    MOST_MADE = 120,     /* merges of a vocabulary */
    MOST_LENGTH = 300,   /* bytes of a token */
    ALL_IDS = 256 + MOST_MADE,
    NAIVE = 48,          /* bytes of pre-tokens that are merged naively, too */
    SEED = 12345,
};

#define CHECK(condition) check(condition, #condition, __LINE__)

static void check(bool holds, const char *condition, int line)
{
    if (holds)
        return;
    fprintf(stderr, "core.c:%d: not so: %s\n", line, condition);
    abort();
}

static void *allocate(size_t size)
{
    void *memory = malloc(size ? size : 1);
    CHECK(memory);
    return memory;
}

/* -- The input ------------------------------------------------------------------------------- */

struct input {
    const uint8_t *at, *end;
};

/* The next byte; 0 behind the last. */
static uint8_t next(struct input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

static uint32_t below(struct input *input, uint32_t n)
{
    uint32_t number = next(input);
    if (n > 256)
        number |= (uint32_t)next(input) << 8;
    if (n > 65536)
        number |= (uint32_t)next(input) << 16;
    return n ? number % n : 0;
}

struct text {
    uint8_t *bytes;
    size_t size;
};

/* What is left of an input as UTF-8: as it is, or each byte a character. */
static struct text take_text(struct input *input)
{
    size_t n = (size_t)(input->end - input->at), size = 0;
    n = n < MOST_TEXT ? n : MOST_TEXT;
    const uint8_t *bytes = input->at;
    input->at += n;
    if (utf8_kind(bytes, n) != NOT_UTF8) {
        struct text text = {allocate(n), n};
        memcpy(text.bytes, bytes, n);
        return text;
    }
    for (size_t i = 0; i < n; i++)
        size += 1 + (bytes[i] >= 0x80);
    struct text text = {allocate(size), size};
    uint8_t *out = text.bytes;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] >= 0x80)
            *out++ = 0xC0 | bytes[i] >> 6;
        *out++ = bytes[i] >= 0x80 ? 0x80 | (bytes[i] & 0x3F) : bytes[i];
    }
    return text;
}

/* -- Scanners -------------------------------------------------------------------------------- */

/* Cut all of a text; the ends rise to its size.  Returns how many there are. */
static size_t cut_all(struct cutter cutter, struct text text, size_t capacity, size_t *ends)
{
    size_t position = 0, total = 0, count, done = 0;
    size_t *some = allocate(capacity * sizeof *some);
    while ((count = cut(cutter, text.bytes, text.size, &position, some, capacity)) != 0) {
        for (size_t i = 0; i < count; i++) {
            CHECK(some[i] > done && some[i] <= text.size);
            ends[total++] = done = some[i];
        }
        CHECK(position == done);
    }
    CHECK(done == text.size);
    free(some);
    return total;
}

static scanner *const *block_scanners(void)
{
#if defined(BPE_WITH_AVX2)
    return has_avx2() ? avx2_scanners : scalar_scanners;
#elif defined(BPE_WITH_NEON)
    return neon_scanners;
#else
    return scalar_scanners;
#endif
}

static void try_scanners(struct input *input)
{
    uint32_t pattern = below(input, PATTERN_COUNT);
    size_t capacity = SCAN_MARGIN + below(input, 600);
    bool by_threes = pattern == PATTERN_cl100k || pattern == PATTERN_o200k || pattern == PATTERN_llama3;
    bool from_right = next(input) & by_threes;
    struct text text = take_text(input);
    size_t *ends = allocate(text.size * sizeof *ends), *others = allocate(text.size * sizeof *ends);
    struct cutter cutter = {.scan = scalar_scanners[pattern], .from_right = from_right};
    size_t n = cut_all(cutter, text, CHUNK_ROOM, ends);
    cutter.scan = block_scanners()[pattern];
    CHECK(cut_all(cutter, text, capacity, others) == n);
    CHECK(memcmp(ends, others, n * sizeof *ends) == 0);
    size_t last = text.size, safe;
    while (last > 0 && (text.bytes[--last] & 0xC0) == 0x80)
        ;
    safe = last_safe_cut(text.bytes, last);
    bool is_end = !safe || pattern == PATTERN_spaces;
    for (size_t i = 0; i < n; i++)
        is_end |= ends[i] == safe;
    CHECK(is_end);
    free(others);
    free(ends);
    free(text.bytes);
}

static void try_automaton(struct input *input)
{
    struct automaton_tables tables = {.n_blocks = 1 + below(input, 3),
                                      .n_classes = 1 + below(input, 8),
                                      .n_states = 2 + below(input, 12),
                                      .asks_for_last_newline = next(input) & 1};
    size_t size = tables.n_states * (tables.n_classes + 2);
    uint16_t *index = allocate(AUTOMATON_INDEX * sizeof *index);
    uint8_t *blocks = allocate(tables.n_blocks * AUTOMATON_BLOCK);
    uint32_t *table = allocate(size * sizeof *table), slack = next(input) % 16 == 0;
    for (size_t i = 0; i < AUTOMATON_INDEX; i++)
        index[i] = (uint16_t)(i < 8 ? below(input, (uint32_t)tables.n_blocks + slack) : i % tables.n_blocks);
    for (size_t i = 0; i < tables.n_blocks * AUTOMATON_BLOCK; i++)
        blocks[i] = (uint8_t)(i % 256 < 16 ? below(input, (uint32_t)tables.n_classes + slack)
                                           : i * 7 % tables.n_classes);
    for (size_t i = 0; i < size; i++)
        table[i] = below(input, 2 * (uint32_t)tables.n_states + slack);
    tables.index = index;
    tables.blocks = blocks;
    tables.table = table;
    bool valid;
    struct automaton *automaton = automaton_new(&tables, &valid);
    CHECK(valid == (automaton != NULL));
    struct text text = take_text(input);
    text.size = text.size < 512 || utf8_kind(text.bytes, 512) == NOT_UTF8 ? text.size : 512;
    size_t *ends = allocate(text.size * sizeof *ends);
    if (automaton)
        cut_all((struct cutter){.automaton = automaton}, text, SCAN_MARGIN, ends);
    automaton_free(automaton);
    free(ends);
    free(text.bytes);
    free(table);
    free(blocks);
    free(index);
}

/* -- A vocabulary ---------------------------------------------------------------------------- */

struct model {
    struct tokens tokens;
    struct vocabulary vocabulary;
    struct superwords *superwords;
    uint32_t byte_ids[256], ids[ALL_IDS], n_ids; /* ids in the order of their tokens */
    struct merge merges[MOST_MADE];
    uint32_t n_merges;
};

/* The id of the token that is two others, joined; NO_TOKEN if there is none. */
static uint32_t joined_token(const struct model *model, struct token left, struct token right)
{
    const uint8_t *bytes = model->tokens.bytes;
    for (uint32_t i = 0; i < model->n_ids; i++) {
        struct token token = model->tokens.by_id[model->ids[i]];
        if (token.length == left.length + right.length &&
            memcmp(bytes + token.at, bytes + left.at, left.length) == 0 &&
            memcmp(bytes + token.at + left.length, bytes + right.at, right.length) == 0)
            return model->ids[i];
    }
    return NO_TOKEN;
}

static void add_merge(struct model *model, uint32_t left, uint32_t right, uint32_t new_id)
{
    uint8_t bytes[MOST_LENGTH];
    struct token first = model->tokens.by_id[left], second = model->tokens.by_id[right];
    size_t length = (size_t)first.length + second.length;
    if (length > MOST_LENGTH)
        return;
    uint32_t joined = joined_token(model, first, second);
    if (joined == NO_TOKEN) {
        memcpy(bytes, model->tokens.bytes + first.at, first.length);
        memcpy(bytes + first.length, model->tokens.bytes + second.at, second.length);
        model->ids[model->n_ids++] = joined = new_id;
        CHECK(tokens_add(&model->tokens, joined, bytes, length) == 0);
    }
    model->merges[model->n_merges++] = (struct merge){left, right, joined};
}

static void make_model(struct model *model, struct input *input)
{
    memset(model, 0, sizeof *model);
    uint8_t flags = next(input), mask = next(input);
    uint32_t n = below(input, MOST_MADE + 1);
    CHECK(tokens_open(&model->tokens, ALL_IDS, SEED) == 0);
    for (unsigned i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)(i ^ mask);
        model->byte_ids[byte] = model->ids[model->n_ids++] = i;
        CHECK(tokens_add(&model->tokens, i, &byte, 1) == 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t left = model->ids[below(input, model->n_ids)];
        uint32_t right = model->ids[below(input, model->n_ids)];
        add_merge(model, left, right, flags & 1 ? ALL_IDS - 1 - i : 256 + i);
    }
    struct vocabulary *v = &model->vocabulary;
    CHECK(tokens_index(&model->tokens) == 0);
    CHECK(vocabulary_load(v, ALL_IDS, model->byte_ids, model->merges, model->n_merges, SEED) == 0);
    if (flags & 2)
        CHECK(vocabulary_set_whole(v, &model->tokens) == 0);
    CHECK(tokens_fill_slots(&model->tokens) == 0);
    if (flags & 4)
        v->superwords = model->superwords = superwords_new(v, &model->tokens);
}

static void release_model(struct model *model)
{
    superwords_free(model->superwords);
    vocabulary_release(&model->vocabulary);
    tokens_release(&model->tokens);
}

static uint32_t naive_rank(const struct model *model, uint32_t left, uint32_t right)
{
    for (uint32_t i = model->n_merges; i-- > 0;)
        if (model->merges[i].left == left && model->merges[i].right == right)
            return i;
    return NO_RANK;
}

/* Merge a pre-token one pair at a time.  Returns how many ids there are. */
static size_t merge_naively(const struct model *model, const uint8_t *bytes, size_t n, uint32_t *ids)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = model->byte_ids[bytes[i]];
    for (;;) {
        uint32_t best = NO_RANK;
        size_t place = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t rank = naive_rank(model, ids[i], ids[i + 1]);
            if (rank < best) {
                best = rank;
                place = i;
            }
        }
        if (best == NO_RANK)
            return n;
        ids[place] = model->merges[best].joined;
        memmove(ids + place + 1, ids + place + 2, (--n - place - 1) * sizeof *ids);
    }
}

static void check_naively(const struct model *model, struct text text, const size_t *ends, size_t n,
                          const uint32_t *ids)
{
    uint32_t expected[NAIVE];
    for (size_t i = 0, start = 0; i < n; start = ends[i++]) {
        size_t length = ends[i] - start, count = 1;
        const uint8_t *bytes = text.bytes + start;
        if (length > NAIVE) { /* whatever the ids are: find out how many */
            for (size_t done = 0; done < length; ids++)
                done += token_length(&model->tokens, *ids);
            continue;
        }
        expected[0] = model->vocabulary.whole
                          ? tokens_find(&model->tokens, bytes, length, bytes, 0) : NO_TOKEN;
        if (expected[0] == NO_TOKEN)
            count = merge_naively(model, bytes, length, expected);
        CHECK(memcmp(ids, expected, count * sizeof *ids) == 0);
        ids += count;
    }
}

/* Whether ids stand for a text; INVARIANT of image.h: the lengths at least are right. */
static void check_ids(const struct tokens *tokens, struct text text, const uint32_t *ids, size_t n,
                      bool bytes_too)
{
    size_t done = 0;
    for (size_t i = 0; i < n; i++) {
        CHECK(tokens_have(tokens, ids[i]));
        struct token token = tokens->by_id[ids[i]];
        CHECK(token.length <= text.size - done);
        CHECK(!bytes_too || memcmp(text.bytes + done, tokens->bytes + token.at, token.length) == 0);
        done += token.length;
    }
    CHECK(done == text.size);
}

static struct worker *worker; /* a cache takes too long to make for each input */

/* Let the worker work for another vocabulary; the library makes one for each. */
static void worker_forget(void)
{
    cache_clear(&worker->cache);
    merge_memory_release(&worker->merging);
    merge_memory_release(&worker->joining);
}

/* Encode in all ways there are; worker->ids has the ids. */
static void encode_variously(const struct vocabulary *v, struct cutter cutter, struct text text,
                             size_t most)
{
    worker_forget();
    for (int again = 0; again < 2; again++) { /* the second time from the cache */
        worker->n_ids = 0;
        CHECK(encode_text(v, worker, cutter, text.bytes, text.size, false) == 0);
        size_t counted = worker->n_ids;
        worker->n_ids = 0;
        CHECK(encode_until(v, worker, cutter, text.bytes, text.size, most) == 0);
        size_t n = worker->n_ids;
        uint32_t *first = allocate(n * sizeof *first);
        if (n)
            memcpy(first, worker->ids, n * sizeof *first);
        worker->n_ids = 0;
        CHECK(encode_text(v, worker, cutter, text.bytes, text.size, true) == 0);
        CHECK(worker->n_ids == counted);
        CHECK(n <= counted && (n > most || n == counted));
        CHECK(!n || memcmp(first, worker->ids, n * sizeof *first) == 0);
        free(first);
    }
}

static void try_encoding(struct input *input)
{
    struct model *model = allocate(sizeof *model);
    make_model(model, input);
    uint32_t pattern = below(input, PATTERN_COUNT), most = below(input, 40);
    struct cutter cutter = {.scan = block_scanners()[pattern]};
    struct text text = take_text(input);
    size_t *ends = allocate(text.size * sizeof *ends);
    size_t n = cut_all(cutter, text, CHUNK_ROOM, ends);
    for (int wide = 0; wide <= has_avx2(); wide++) {
        model->vocabulary.use_avx2 = wide;
        encode_variously(&model->vocabulary, cutter, text, most);
        check_ids(&model->tokens, text, worker->ids, worker->n_ids, true);
        check_naively(model, text, ends, n, worker->ids);
    }
    struct dropout dropout = {.limit = (uint64_t)most << 48, .state = SEED};
    worker->n_ids = 0;
    CHECK(encode_text_dropping(&model->vocabulary, worker, cutter, &dropout, text.bytes,
                               text.size) == 0);
    check_ids(&model->tokens, text, worker->ids, worker->n_ids, true);
    dropout_release(&dropout);
    worker_trim(worker);
    free(ends);
    free(text.bytes);
    release_model(model);
    free(model);
}

/* -- Images ---------------------------------------------------------------------------------- */

/* Change some bytes, each in the head or in an array. */
static void change_image(uint8_t *data, size_t size, struct image *image, struct input *input)
{
    uint64_t head[HEAD_NUMBERS];
    struct array arrays[ARRAYS];
    memcpy(head, data, sizeof head);
    list_arrays(image, head, arrays);
    for (unsigned n = below(input, 6); n > 0; n--) {
        size_t at = 0, room = sizeof head;
        uint32_t chosen = below(input, ARRAYS + 1);
        if (chosen < ARRAYS) {
            at = align(sizeof head);
            for (uint32_t i = 0; i < chosen; i++)
                at += align(arrays[i].size);
            room = arrays[chosen].size;
        }
        if (room)
            data[at + below(input, (uint32_t)room)] ^= next(input);
    }
    if (next(input) % 8) { /* mostly as an enemy would do it */
        uint64_t sum = checksum(data + CHECKED_FROM, size - CHECKED_FROM);
        memcpy(data + HEAD_CHECKSUM * sizeof sum, &sum, sizeof sum);
    }
}

static void try_image(struct input *input)
{
    struct model *model = allocate(sizeof *model);
    make_model(model, input);
    struct id_pair pairs[MOST_MADE];
    for (uint32_t i = 0; i < model->n_merges; i++)
        pairs[i] = (struct id_pair){model->merges[i].left, model->merges[i].right};
    struct image image = {model->tokens, model->vocabulary,
                          {model->ids, model->n_ids, model->n_ids, pairs, model->n_merges, false},
                          (const uint8_t *)"rest", 4};
    size_t size = image_size(&image);
    uint8_t *data = allocate(size);
    image_write(&image, data);
    change_image(data, size, &image, input);
    size -= next(input) % 32 ? 0 : below(input, (uint32_t)size);
    uint8_t *copy = allocate(size); /* which ends where the data does */
    memcpy(copy, data, size);
    uint32_t pattern = below(input, PATTERN_COUNT);
    struct text text = take_text(input);
    if (image_read(&image, copy, size)) {
        if (image.vocabulary.whole_keys)
            image.vocabulary.whole = &image.tokens;
        for (int wide = 0; wide <= has_avx2(); wide++) {
            image.vocabulary.use_avx2 = wide;
            struct cutter cutter = {.scan = block_scanners()[pattern]};
            struct superwords *superwords = superwords_new(&image.vocabulary, &image.tokens);
            image.vocabulary.superwords = superwords;
            worker_forget();
            worker->n_ids = 0;
            CHECK(encode_text(&image.vocabulary, worker, cutter, text.bytes, text.size, true) == 0);
            check_ids(&image.tokens, text, worker->ids, worker->n_ids, false);
            superwords_free(superwords);
        }
        for (uint32_t id = 0; id < image.tokens.n_ids; id++)
            if (tokens_have(&image.tokens, id)) {
                struct token token = image.tokens.by_id[id];
                const uint8_t *bytes = image.tokens.bytes + token.at;
                tokens_find(&image.tokens, bytes, token.length, bytes, 0);
                count_characters(&image.tokens, id);
            }
    }
    free(text.bytes);
    free(copy);
    free(data);
    release_model(model);
    free(model);
}

/* -- Strings in text ------------------------------------------------------------------------- */

enum { MOST_STRINGS = 12, MOST_CHARACTERS = 6 };

static void widen(const uint32_t *characters, size_t n, int width, void *out)
{
    for (size_t i = 0; i < n; i++)
        if (width == 1)
            ((uint8_t *)out)[i] = (uint8_t)characters[i];
        else if (width == 2)
            ((uint16_t *)out)[i] = (uint16_t)characters[i];
        else
            ((uint32_t *)out)[i] = characters[i];
}

/* The longest string at a place; NO_STRING if there is none. */
static uint32_t string_at(const uint32_t *text, size_t left, const uint32_t *strings,
                          const uint32_t *lengths, uint32_t n)
{
    uint32_t best = NO_STRING;
    for (uint32_t i = 0; i < n; strings += lengths[i++])
        if (lengths[i] <= left && memcmp(text, strings, lengths[i] * sizeof *text) == 0 &&
            (best == NO_STRING || lengths[i] > lengths[best]))
            best = i;
    return best;
}

static void try_finder(struct input *input)
{
    uint32_t characters[MOST_STRINGS * MOST_CHARACTERS], lengths[MOST_STRINGS], total = 0;
    uint32_t n = 1 + below(input, MOST_STRINGS), few = 1 + below(input, 5), wide = next(input) % 3;
    int width = 1 << wide;
    const uint32_t offset = wide == 0 ? 'a' : wide == 1 ? 0x4E00 : 0x1F600;
    for (uint32_t i = 0; i < n; i++) {
        lengths[i] = 1 + below(input, MOST_CHARACTERS);
        for (uint32_t k = 0; k < lengths[i]; k++)
            characters[total++] = offset + below(input, few);
    }
    size_t size = (size_t)(input->end - input->at), matched = 0;
    size = size < MOST_TEXT ? size : MOST_TEXT;
    uint32_t *text = allocate(size * sizeof *text);
    for (size_t i = 0; i < size; i++)
        text[i] = offset + below(input, few + (i % 64 == 63));
    void *given = allocate(size * (size_t)width);
    widen(text, size, width, given);
    struct finder finder;
    struct matches matches = {0};
    CHECK(finder_open(&finder, characters, lengths, n, SEED) == 0);
    CHECK(finder_find(&finder, given, width, 0, size, &matches) == 0);
    for (size_t at = 0; at < size;) {
        uint32_t found = string_at(text + at, size - at, characters, lengths, n);
        if (found == NO_STRING) {
            at++;
            continue;
        }
        CHECK(matched < matches.n && matches.items[matched].start == at);
        CHECK(lengths[matches.items[matched++].string] == lengths[found]);
        at += lengths[found];
    }
    CHECK(matched == matches.n);
    free(matches.items);
    finder_release(&finder);
    free(given);
    free(text);
}

/* -- Ranks, counts and learning -------------------------------------------------------------- */

static void try_ranks(struct input *input)
{
    struct ranks *ranks = allocate(sizeof *ranks);
    uint32_t n = 1 + below(input, 60);
    uint8_t bytes[MOST_LENGTH];
    CHECK(ranks_open(ranks, n, SEED) == 0);
    for (uint32_t i = 0; i < n; i++) {
        size_t length = 1 + below(input, next(input) % 32 ? 6 : MOST_LENGTH);
        for (size_t k = 0; k < length; k++)
            bytes[k] = "ab\xE4\xB8"[next(input) % 4];
        CHECK(tokens_add(&ranks->tokens, i, bytes, length) == 0);
    }
    CHECK(ranks_read(ranks) == 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t left, right;
        if (find_merge(ranks, i, &left, &right) > 0) {
            struct token a = ranks->tokens.by_id[left], b = ranks->tokens.by_id[right];
            struct token made = ranks->tokens.by_id[i];
            const uint8_t *all = ranks->tokens.bytes;
            CHECK(a.length + b.length == made.length);
            CHECK(memcmp(all + made.at, all + a.at, a.length) == 0);
            CHECK(memcmp(all + made.at + a.length, all + b.at, b.length) == 0);
        }
    }
    ranks_release(ranks);
    free(ranks);
}

static void try_counting(struct input *input)
{
    struct cutter cutter = {.scan = block_scanners()[below(input, PATTERN_COUNT)]};
    struct text text = take_text(input);
    struct counter *counter = counter_new(SEED);
    size_t *ends = allocate(text.size * sizeof *ends), n = cut_all(cutter, text, CHUNK_ROOM, ends);
    CHECK(counter && count_text(counter, cutter, text.bytes, text.size) == 0);
    CHECK(counter_finish(counter) == 0);
    uint64_t *expected;
    struct byte_map map;
    byte_map_open(&map, SEED + 1);
    for (size_t i = 0, start = 0; i < n; start = ends[i++]) {
        expected = byte_map_at(&map, text.bytes + start, ends[i] - start);
        CHECK(expected);
        ++*expected;
    }
    for (size_t i = 0, start = 0; i < n; start = ends[i++])
        CHECK(byte_map_get(&counter->map, text.bytes + start, ends[i] - start) ==
              byte_map_get(&map, text.bytes + start, ends[i] - start));
    byte_map_close(&map);
    free(ends);
    counter_free(counter);
    free(text.bytes);
}

static void try_learning(struct input *input)
{
    uint8_t alphabet[256], bytes[MOST_LENGTH];
    uint32_t n = below(input, 40);
    uint8_t few = (uint8_t)(1 + below(input, 4));
    for (unsigned i = 0; i < 256; i++)
        alphabet[i] = (uint8_t)i;
    struct learner *learner = learner_new(SEED, n * (size_t)(WORD_HEADER + MOST_LENGTH));
    CHECK(learner);
    learner->wanted = below(input, 60);
    learner->min_frequency = 1 + below(input, 3);
    learner->limit = next(input) % 4 ? UINT64_MAX : 2 + below(input, 9);
    if (next(input) % 4 == 0)
        CHECK(learner_forbid(learner, (const uint8_t *)"aa", 2) == 0);
    CHECK(learner_add_bytes(learner, alphabet) == 0);
    for (uint32_t i = 0; i < n; i++) {
        size_t length = 2 + below(input, next(input) % 16 ? 9 : MOST_LENGTH - 1);
        int64_t count = 1 + below(input, 5);
        for (size_t k = 0; k < length; k++)
            bytes[k] = (uint8_t)('a' + next(input) % few);
        CHECK(learner_add(learner, bytes, length, count) == 0);
    }
    CHECK(learner_start(learner) == 0);
    enum learning state;
    while ((state = learner_learn(learner, 1 + below(input, 99))) == LEARNING)
        ;
    CHECK(state != NO_MEMORY && state != MADE_TWICE);
    CHECK(learner->n_tokens - learner->n_base <= learner->wanted);
    learner_free(learner);
}

/* -- One input ------------------------------------------------------------------------------- */

static void (*const trials[])(struct input *) = {
    try_scanners, try_automaton, try_encoding, try_image,
    try_finder,   try_ranks,     try_counting, try_learning,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, data + size};
    if (!worker)
        CHECK((worker = worker_new()) != NULL);
    trials[below(&input, sizeof trials / sizeof *trials)](&input);
    return 0;
}
