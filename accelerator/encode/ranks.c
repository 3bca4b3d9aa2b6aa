/* Merges from ranks: the two parts of a token, encoded alone, before the last step.
 *
 * Text is encoded by joining, again and again, the neighbors whose joined bytes are the token of
 * the lowest rank, the leftmost of equals.  bpe_tokenizer_tools/formats/ranks.py says why one merge
 * for each token does the same.
 *
 * So the merges of lower rank are all that is needed to encode a token without itself.  If that
 * leaves two parts, no token of a higher rank had its turn before, and these are the merge.  If
 * more are left, as hardly ever happens, tokens of higher ranks go on from there: then all is done
 * again with the bytes of any neighbors looked up. */

#include <stdlib.h>
#include <string.h>

#include "encode/ranks.h"

int ranks_open(struct ranks *r, uint32_t n_tokens, uint64_t seed)
{
    memset(r, 0, sizeof *r);
    return tokens_open(&r->tokens, n_tokens, seed);
}

void ranks_release(struct ranks *r)
{
    tokens_release(&r->tokens);
    vocabulary_release(&r->vocabulary);
    vocabulary_release(&r->by_bytes);
    merge_memory_release(&r->merging);
    free(r->starts);
    free(r->ranks);
    memset(r, 0, sizeof *r);
}

int ranks_read(struct ranks *r)
{
    uint32_t byte_ids[256] = {0};
    for (uint32_t id = r->tokens.n_ids; id-- > 0;) { /* of equal ones the first counts */
        struct token token = r->tokens.by_id[id];
        if (token.length != 1)
            continue;
        uint8_t byte = r->tokens.bytes[token.at];
        r->is_symbol[byte] = true;
        byte_ids[byte] = id;
    }
    return vocabulary_open(&r->vocabulary, r->tokens.n_ids, byte_ids, r->tokens.n_ids,
                           r->tokens.seed);
}

/* -- By bytes -------------------------------------------------------------------------------- */

static int index_bytes(struct ranks *r)
{
    size_t longest = 0;
    for (uint32_t id = 0; id < r->tokens.n_ids; id++)
        if (r->tokens.by_id[id].length > longest)
            longest = r->tokens.by_id[id].length;
    r->starts = malloc((longest + 1) * sizeof *r->starts);
    r->ranks = malloc((longest + 1) * sizeof *r->ranks);
    if (!r->starts || !r->ranks)
        return -1;
    r->by_bytes.seed = r->tokens.seed;
    return vocabulary_set_whole(&r->by_bytes, &r->tokens);
}

/* The token that some bytes are; NO_TOKEN, which ranks above all, if there is none.  Behind the
 * bytes of a token 16 more can be read. */
static uint32_t rank_of_bytes(const struct ranks *r, const uint8_t *bytes, size_t length)
{
    struct key key = {0, 0};
    if (length <= KEY_BYTES)
        key = make_key(bytes, length);
    return whole_token(&r->by_bytes, key, bytes, length);
}

/* Part i of a token begins at starts[i]; ranks[i] is that of parts i and i + 1, joined. */
static uint32_t rank_at(const struct ranks *r, const uint8_t *bytes, size_t i)
{
    return rank_of_bytes(r, bytes + r->starts[i], r->starts[i + 2] - r->starts[i]);
}

static int find_by_bytes(struct ranks *r, struct token token, uint32_t *left, uint32_t *right)
{
    const uint8_t *bytes = r->tokens.bytes + token.at;
    size_t n = token.length; /* parts */
    if (!r->starts && index_bytes(r) < 0)
        return -1;
    for (size_t i = 0; i <= n; i++)
        r->starts[i] = (uint32_t)i;
    for (size_t i = 0; i + 1 < n; i++)
        r->ranks[i] = rank_at(r, bytes, i);
    while (n > 2) {
        size_t at = 0;
        for (size_t i = 1; i + 1 < n; i++)
            at = r->ranks[i] < r->ranks[at] ? i : at;
        if (r->ranks[at] == NO_TOKEN)
            return 0;
        memmove(r->starts + at + 1, r->starts + at + 2, (n - at - 1) * sizeof *r->starts);
        n--;
        memmove(r->ranks + at, r->ranks + at + 1, (n - 1 - at) * sizeof *r->ranks);
        if (at)
            r->ranks[at - 1] = rank_at(r, bytes, at - 1);
        if (at + 1 < n)
            r->ranks[at] = rank_at(r, bytes, at);
    }
    *left = rank_of_bytes(r, bytes, r->starts[1]);
    *right = rank_of_bytes(r, bytes + r->starts[1], token.length - r->starts[1]);
    return 1;
}

/* -- By merges ------------------------------------------------------------------------------- */

static bool is_of_symbols(const struct ranks *r, struct token token)
{
    for (size_t i = 0; i < token.length; i++)
        if (!r->is_symbol[r->tokens.bytes[token.at + i]])
            return false;
    return true;
}

int find_merge(struct ranks *r, uint32_t id, uint32_t *left, uint32_t *right)
{
    struct token token = r->tokens.by_id[id];
    const uint8_t *bytes = r->tokens.bytes + token.at;
    if (token.length < 2 || !is_of_symbols(r, token))
        return 0;
    size_t parts = token.length <= MERGED_UP_TO
                       ? merge_bytes(&r->vocabulary, &r->merging, bytes, token.length, r->ids)
                       : 0;
    *left = r->ids[0];
    *right = r->ids[1];
    if (parts != 2) {
        int found = find_by_bytes(r, token, left, right);
        if (found != 1)
            return found;
    }
    vocabulary_add_pair(&r->vocabulary, *left, *right, id);
    if (token.length == 2)
        r->vocabulary.byte_pair_ranks[bytes[0] << 8 | bytes[1]] = id;
    return 1;
}
