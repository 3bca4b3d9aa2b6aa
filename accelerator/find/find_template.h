/* Finding strings in text whose characters are UNITs; OF_UNIT makes the names of its functions. */

/* Whether one of `n` characters is in a stride, and one of `m` right after it. */
ALWAYS_INLINE bool OF_UNIT(has_first)(const UNIT *text, const UNIT *firsts, unsigned n)
{
    UNIT any = 0;
    for (size_t i = 0; i < STRIDE; i++)
        for (unsigned k = 0; k < n; k++)
            any |= (UNIT)(text[i] == firsts[k]);
    return any;
}

ALWAYS_INLINE bool OF_UNIT(has_both)(const UNIT *text, const UNIT *firsts, unsigned n,
                                     const UNIT *seconds, unsigned m)
{
    UNIT any = 0;
    for (size_t i = 0; i < STRIDE; i++) {
        UNIT first = 0, second = 0;
        for (unsigned k = 0; k < n; k++)
            first |= (UNIT)(text[i] == firsts[k]);
        for (unsigned k = 0; k < m; k++)
            second |= (UNIT)(text[i + 1] == seconds[k]);
        any |= first & second;
    }
    return any;
}

/* Get over text in which no two neighbors are one of `n` characters and one of `m`, or anything if
 * m is 0: a whole number of strides. */
ALWAYS_INLINE size_t OF_UNIT(stride)(const UNIT *text, size_t at, size_t end, const UNIT *firsts,
                                     unsigned n, const UNIT *seconds, unsigned m)
{
    for (; end - at > STRIDE; at += STRIDE)
        if (OF_UNIT(has_first)(text + at, firsts, n) &&
            (m == 0 || OF_UNIT(has_both)(text + at, firsts, n, seconds, m)))
            break;
    return at;
}

/* Copy those of a few characters that a UNIT can be; if there are two or three, fill up to FEW.
 * Returns how many there are now. */
static unsigned OF_UNIT(take_few)(const struct few *few, UNIT *taken)
{
    unsigned n = 0;
    for (unsigned i = 0; i < few->n; i++)
        if (few->items[i] <= (UNIT)-1)
            taken[n++] = (UNIT)few->items[i];
    for (; n > 1 && n < FEW; n++)
        taken[n] = taken[0];
    return n;
}

/* Get over text in which no string begins, as far as the first two characters of all tell. */
static size_t OF_UNIT(get_over)(const struct finder *finder, const UNIT *text, size_t at,
                                size_t end)
{
    UNIT firsts[FEW], seconds[FEW];
    unsigned n = OF_UNIT(take_few)(&finder->firsts, firsts);
    if (n == 0)
        return end;
    if (finder->seconds.n > FEW)
        return n == 1 ? OF_UNIT(stride)(text, at, end, firsts, 1, seconds, 0)
                      : OF_UNIT(stride)(text, at, end, firsts, FEW, seconds, 0);
    unsigned m = OF_UNIT(take_few)(&finder->seconds, seconds);
    if (m == 0)
        return end;
    if (n == 1)
        return m == 1 ? OF_UNIT(stride)(text, at, end, firsts, 1, seconds, 1)
                      : OF_UNIT(stride)(text, at, end, firsts, 1, seconds, FEW);
    return m == 1 ? OF_UNIT(stride)(text, at, end, firsts, FEW, seconds, 1)
                  : OF_UNIT(stride)(text, at, end, firsts, FEW, seconds, FEW);
}

/* Return the next place where a string may begin, or `end`. */
static size_t OF_UNIT(next_start)(const struct finder *finder, const UNIT *text, size_t at,
                                  size_t end)
{
    while (at < end) {
        size_t stop = end;
        if (finder->firsts.n <= FEW) {
            at = OF_UNIT(get_over)(finder, text, at, end);
            stop = end - at < STRIDE ? end : at + STRIDE;
        }
        for (; at < stop; at++) {
            uint8_t start = *start_slot(finder, text[at]);
            if (start & ALONE)
                return at;
            if (start && at + 1 < end && *pair_slot(finder, text[at], text[at + 1]) & BEGINS)
                return at;
        }
    }
    return end;
}

static int OF_UNIT(find)(const struct finder *finder, const void *all, size_t start, size_t end,
                         struct matches *matches)
{
    const UNIT *text = all;
    size_t at = start;
    while ((at = OF_UNIT(next_start)(finder, text, at, end)) < end) {
        size_t stop = at + 1, first = matches->n;
        while (stop < end && *pair_slot(finder, text[stop - 1], text[stop]))
            stop++;
        if (stop - at >= finder->shortest) {
            uint32_t ending = 0;
            for (size_t i = stop; i-- > at;) {
                ending = step(finder, ending, text[i]);
                uint32_t string = finder->endings[ending].longest;
                if (string != NO_STRING && add_match(matches, i, string) < 0)
                    return -1;
            }
            keep_leftmost(finder, matches, first);
        }
        at = stop;
    }
    return 0;
}
