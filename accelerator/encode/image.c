/* Encoders as blocks of bytes: a head of numbers, then arrays, whose sizes follow from the head. */

#include <string.h>

#include "base/hash.h"
#include "encode/image.h"

#define MAGIC UINT64_C(0x334567616D697062) /* "bpimagE3", and which end of a number comes first */

enum { ALIGNMENT = 64, MOST_BITS = 27 }; /* of tables, which have 2 to 4 slots for each id or merge */

/* The numbers in the head. */
enum {
    HEAD_MAGIC,
    HEAD_CHECKSUM, /* of all that follows */
    HEAD_SIZE,
    HEAD_REST,
    HEAD_IDS,
    HEAD_BYTES,
    HEAD_SLOT_BITS,
    HEAD_VOCAB,
    HEAD_LISTED,
    HEAD_MERGES,
    HEAD_PAIR_BITS,
    HEAD_PAIR_FACTOR,
    HEAD_HAS_JOINED,
    HEAD_ORDERED,
    HEAD_HAS_WHOLE,
    HEAD_WHOLE_BITS,
    HEAD_LONG_BITS,
    HEAD_SEED,
    HEAD_NUMBERS,
};

/* -- Where what is --------------------------------------------------------------------------- */

static void fill_head(const struct image *image, uint64_t head[HEAD_NUMBERS])
{
    const struct tokens *tokens = &image->tokens;
    const struct vocabulary *v = &image->vocabulary;
    memset(head, 0, HEAD_NUMBERS * sizeof *head);
    head[HEAD_MAGIC] = MAGIC;
    head[HEAD_REST] = image->rest_size;
    head[HEAD_IDS] = tokens->n_ids;
    head[HEAD_BYTES] = tokens->used;
    head[HEAD_SLOT_BITS] = tokens->slot_bits;
    head[HEAD_VOCAB] = image->lists.n_vocab;
    head[HEAD_LISTED] = image->lists.n_ids;
    head[HEAD_MERGES] = image->lists.n_merges;
    head[HEAD_PAIR_BITS] = v->pair_bits;
    head[HEAD_PAIR_FACTOR] = v->pair_factor;
    head[HEAD_HAS_JOINED] = v->joined != NULL;
    head[HEAD_ORDERED] = v->ordered;
    head[HEAD_HAS_WHOLE] = v->whole_keys != NULL;
    head[HEAD_WHOLE_BITS] = v->whole_bits;
    head[HEAD_LONG_BITS] = v->whole_long_bits;
    head[HEAD_SEED] = v->seed;
}

/* Set all fields that aren't arrays from the head.  False if a number is out of its range. */
static bool read_head(struct image *image, const uint64_t head[HEAD_NUMBERS])
{
    struct tokens *tokens = &image->tokens;
    struct vocabulary *v = &image->vocabulary;
    struct lists *lists = &image->lists;
    uint64_t bits = head[HEAD_SLOT_BITS] | head[HEAD_PAIR_BITS];
    if (head[HEAD_HAS_WHOLE])
        bits |= head[HEAD_WHOLE_BITS] | head[HEAD_LONG_BITS];
    if (head[HEAD_MAGIC] != MAGIC || head[HEAD_IDS] > MAX_IDS || head[HEAD_MERGES] > MAX_MERGES ||
        head[HEAD_BYTES] > UINT32_MAX - TOKEN_SLACK || head[HEAD_LISTED] > head[HEAD_IDS] ||
        head[HEAD_VOCAB] > head[HEAD_LISTED] || head[HEAD_REST] > UINT32_MAX || bits > 31)
        return false;
    tokens->n_ids = v->n_ids = (uint32_t)head[HEAD_IDS];
    tokens->used = (size_t)head[HEAD_BYTES];
    tokens->room = tokens->used + TOKEN_SLACK;
    tokens->slot_bits = (unsigned)head[HEAD_SLOT_BITS];
    tokens->seed = v->seed = head[HEAD_SEED];
    lists->n_vocab = (uint32_t)head[HEAD_VOCAB];
    lists->n_ids = (uint32_t)head[HEAD_LISTED];
    lists->n_merges = (uint32_t)head[HEAD_MERGES];
    v->pair_bits = (unsigned)head[HEAD_PAIR_BITS];
    v->pair_factor = head[HEAD_PAIR_FACTOR];
    v->n_ranks = head[HEAD_HAS_JOINED] ? lists->n_merges : tokens->n_ids;
    v->ordered = head[HEAD_ORDERED];
    v->whole_bits = (unsigned)head[HEAD_WHOLE_BITS];
    v->whole_long_bits = (unsigned)head[HEAD_LONG_BITS];
    image->rest_size = (size_t)head[HEAD_REST];
    return tokens->slot_bits && tokens->slot_bits <= MOST_BITS && v->pair_bits &&
           v->pair_bits <= MOST_BITS &&
           (!head[HEAD_HAS_WHOLE] || (v->whole_bits && v->whole_bits <= MOST_BITS &&
                                      v->whole_long_bits && v->whole_long_bits <= MOST_BITS));
}

struct array {
    void *at; /* the address of a pointer to it */
    size_t size;
};

enum { ARRAYS = 17 };

/* The arrays in their order, by the numbers in the head. */
static void list_arrays(struct image *image, const uint64_t head[HEAD_NUMBERS],
                        struct array arrays[ARRAYS])
{
    struct tokens *tokens = &image->tokens;
    struct vocabulary *v = &image->vocabulary;
    struct lists *lists = &image->lists;
    size_t n_ids = tokens->n_ids, filter = (1 << FILTER_BITS) / 8;
    bool joined = head[HEAD_HAS_JOINED], whole = head[HEAD_HAS_WHOLE];
    const struct array all[ARRAYS] = {
        {&tokens->by_id, n_ids * sizeof *tokens->by_id},
        {&tokens->bytes, tokens->used + TOKEN_SLACK},
        {&tokens->by_slot, n_ids * SLOT_BYTES},
        {&tokens->lengths, n_ids},
        {&tokens->characters, n_ids},
        {&tokens->slots, sizeof *tokens->slots << tokens->slot_bits},
        {&lists->ids, lists->n_ids * sizeof *lists->ids},
        {&lists->merges, lists->n_merges * sizeof *lists->merges},
        {&v->pairs, sizeof *v->pairs << v->pair_bits},
        {&v->filter, filter},
        {&v->byte_pair_ranks, 65536 * sizeof *v->byte_pair_ranks},
        {&v->joined, joined ? lists->n_merges * sizeof *v->joined : 0},
        {&v->whole_keys, whole ? sizeof *v->whole_keys << v->whole_bits : 0},
        {&v->whole_filter, whole ? filter : 0},
        {&v->whole_longs, whole ? sizeof *v->whole_longs << v->whole_long_bits : 0},
        {NULL, sizeof v->byte_ids},
        {&image->rest, image->rest_size},
    };
    memcpy(arrays, all, sizeof all);
}

static uint64_t align(uint64_t size)
{
    return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint64_t size_of(const struct array arrays[ARRAYS])
{
    uint64_t size = align(HEAD_NUMBERS * sizeof(uint64_t));
    for (int i = 0; i < ARRAYS; i++)
        size += align(arrays[i].size);
    return size;
}

/* A checksum against damage.  Four at a time: each step waits for the one before it. */
static uint64_t checksum(const uint8_t *data, size_t size)
{
    uint64_t sums[4] = {1, 2, 3, 4}; /* sizes are multiples of 64, less the head's first 16 */
    for (; size >= 32; data += 32, size -= 32)
        for (int i = 0; i < 4; i++)
            sums[i] = fold_product(sums[i] ^ load_64(data + 8 * i), HASH_FACTOR);
    for (; size >= 8; data += 8, size -= 8)
        sums[0] = fold_product(sums[0] ^ load_64(data), HASH_FACTOR);
    for (int i = 1; i < 4; i++)
        sums[0] = fold_product(sums[0] ^ sums[i], HASH_FACTOR);
    return sums[0];
}

enum { CHECKED_FROM = 2 * sizeof(uint64_t) }; /* after the checksum */

size_t image_size(const struct image *image)
{
    struct image copy = *image;
    uint64_t head[HEAD_NUMBERS];
    struct array arrays[ARRAYS];
    fill_head(image, head);
    list_arrays(&copy, head, arrays);
    return (size_t)size_of(arrays);
}

void image_write(const struct image *image, uint8_t *out)
{
    struct image copy = *image;
    uint64_t head[HEAD_NUMBERS];
    struct array arrays[ARRAYS];
    fill_head(image, head);
    list_arrays(&copy, head, arrays);
    size_t at = align(sizeof head), size = (size_t)size_of(arrays);
    memset(out, 0, size);
    for (int i = 0; i < ARRAYS; i++) {
        const void *array = image->vocabulary.byte_ids;
        if (arrays[i].at)
            memcpy(&array, arrays[i].at, sizeof array); /* any pointer */
        if (arrays[i].size)
            memcpy(out + at, array, arrays[i].size);
        at += align(arrays[i].size);
    }
    head[HEAD_SIZE] = size;
    memcpy(out, head, sizeof head);
    head[HEAD_CHECKSUM] = checksum(out + CHECKED_FROM, size - CHECKED_FROM);
    memcpy(out, head, sizeof head);
}

/* -- Checks ---------------------------------------------------------------------------------- */

enum { NO_LENGTH = -1 };

/* The bytes of a token, or NO_LENGTH if there is none. */
static int64_t length_of(const struct tokens *tokens, uint32_t id)
{
    if (id >= tokens->n_ids || tokens->lengths[id] == NOT_IN_SLOT)
        return NO_LENGTH;
    return (int64_t)token_length(tokens, id);
}

/* INVARIANT: by_id, by_slot and lengths agree, and no token ends past the bytes. */
static bool check_tokens(const struct tokens *tokens)
{
    for (uint32_t id = 0; id < tokens->n_ids; id++) {
        struct token token = tokens->by_id[id];
        uint8_t kind = token.length > IN_SLOT ? LONG_IN_SLOT : (uint8_t)token.length;
        if (token.at == NO_TOKEN)
            kind = NOT_IN_SLOT;
        else if ((uint64_t)token.at + token.length > tokens->used)
            return false;
        if (tokens->lengths[id] != kind || tokens->by_slot[(size_t)id * SLOT_BYTES + IN_SLOT] != kind)
            return false;
    }
    size_t free_slots = 0;
    for (size_t slot = 0; slot < (size_t)1 << tokens->slot_bits; slot++) {
        uint32_t id = tokens->slots[slot];
        free_slots += id == NO_TOKEN;
        if (id != NO_TOKEN && length_of(tokens, id) == NO_LENGTH)
            return false;
    }
    return free_slots > 0; /* where every search ends */
}

static bool check_lists(const struct tokens *tokens, const struct lists *lists)
{
    for (uint32_t i = 0; i < lists->n_ids; i++)
        if (length_of(tokens, lists->ids[i]) == NO_LENGTH)
            return false;
    for (uint32_t i = 0; i < lists->n_merges; i++)
        if (length_of(tokens, lists->merges[i].left) == NO_LENGTH ||
            length_of(tokens, lists->merges[i].right) == NO_LENGTH)
            return false;
    return true;
}

/* The bytes of the token that a rank makes, or NO_LENGTH. */
static int64_t made_by(const struct image *image, uint32_t rank)
{
    if (rank >= image->vocabulary.n_ranks)
        return NO_LENGTH;
    return length_of(&image->tokens, joined_id(&image->vocabulary, rank));
}

/* INVARIANT: a merge makes a token of as many bytes as its parts have. */
static bool check_merges(const struct image *image)
{
    const struct vocabulary *v = &image->vocabulary;
    const struct tokens *tokens = &image->tokens;
    for (int byte = 0; byte < 256; byte++)
        if (length_of(tokens, v->byte_ids[byte]) != 1)
            return false;
    for (int pair = 0; pair < 65536; pair++)
        if (v->byte_pair_ranks[pair] != NO_RANK && made_by(image, v->byte_pair_ranks[pair]) != 2)
            return false;
    size_t free_slots = 0;
    for (size_t slot = 0; slot < (size_t)1 << v->pair_bits; slot++) {
        uint64_t pair = v->pairs[slot];
        if (pair == UINT64_MAX) {
            free_slots++;
            continue;
        }
        int64_t left = length_of(tokens, (uint32_t)(pair >> (ID_BITS + RANK_BITS)));
        int64_t right = length_of(tokens, (uint32_t)(pair >> RANK_BITS) & ID_MASK);
        if (left == NO_LENGTH || right == NO_LENGTH ||
            made_by(image, (uint32_t)pair & NO_RANK) != left + right)
            return false;
    }
    return free_slots > 0;
}

/* INVARIANT: what is found has as many bytes as it was looked for with. */
static bool check_whole(const struct image *image)
{
    const struct vocabulary *v = &image->vocabulary;
    const struct tokens *tokens = &image->tokens;
    size_t free_slots = 0, free_longs = 0;
    if (!v->whole_keys)
        return true;
    for (size_t slot = 0; slot < (size_t)1 << v->whole_bits; slot++) {
        uint64_t high = v->whole_keys[slot].high;
        uint32_t id = whole_key_id(high);
        free_slots += high == 0;
        if (high && length_of(tokens, id) != (int64_t)(high >> 56))
            return false;
    }
    for (size_t slot = 0; slot < (size_t)1 << v->whole_long_bits; slot++) {
        uint32_t id = v->whole_longs[slot].id;
        free_longs += id == NO_TOKEN;
        if (id != NO_TOKEN && length_of(tokens, id) == NO_LENGTH)
            return false;
    }
    return free_slots > 0 && free_longs > 0;
}

bool image_read(struct image *image, const uint8_t *data, size_t size)
{
    uint64_t head[HEAD_NUMBERS];
    struct array arrays[ARRAYS];
    memset(image, 0, sizeof *image);
    if (size < align(sizeof head) || (uintptr_t)data % sizeof(uint64_t))
        return false;
    memcpy(head, data, sizeof head);
    if (!read_head(image, head))
        return false;
    list_arrays(image, head, arrays);
    if (head[HEAD_SIZE] != size || size_of(arrays) != size ||
        checksum(data + CHECKED_FROM, size - CHECKED_FROM) != head[HEAD_CHECKSUM])
        return false;
    size_t at = align(sizeof head);
    for (int i = 0; i < ARRAYS; i++) {
        const void *array = arrays[i].size ? data + at : NULL;
        if (arrays[i].at)
            memcpy(arrays[i].at, &array, sizeof array);
        else
            memcpy(image->vocabulary.byte_ids, array, sizeof image->vocabulary.byte_ids);
        at += align(arrays[i].size);
    }
    return check_tokens(&image->tokens) && check_lists(&image->tokens, &image->lists) &&
           check_merges(image) && check_whole(image);
}
