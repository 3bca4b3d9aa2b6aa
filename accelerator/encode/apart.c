/* Encoding pieces separately.
 *
 * Pieces of superwords are long, so few of them occur twice.  But no merge crosses a place between
 * two bytes that are adjacent in no token.  Cut at these places, a piece falls into parts that the
 * cache knows; most of them are words. */

#include "encode/encode.h"

static int encode_piece(const struct vocabulary *v, struct worker *worker, const uint8_t *text,
                        size_t size, size_t start, size_t end, const uint64_t *meet)
{
    size_t first = start, count = 0;
    for (size_t at = start + 1; at <= end; at++) {
        if (at < end && may_meet(meet, text + at))
            continue;
        worker->ends[count++] = at;
        if (at < end && count < CHUNK)
            continue;
        if (encode_pieces(v, worker, text, size, first, count) < 0)
            return -1;
        first = at;
        count = 0;
    }
    return 0;
}

int encode_apart(const struct vocabulary *v, struct worker *worker, struct cutter cutter,
                 const uint8_t *text, size_t size, const uint64_t meet[MEETINGS], uint32_t between)
{
    size_t ends[CHUNK_ROOM], count, position = 0, start = 0;
    while ((count = cut(cutter, text, size, &position, ends, CHUNK_ROOM)) != 0)
        for (size_t i = 0; i < count; start = ends[i++])
            if (encode_piece(v, worker, text, size, start, ends[i], meet) < 0 ||
                worker_add_id(worker, between) < 0)
                return -1;
    return 0;
}
