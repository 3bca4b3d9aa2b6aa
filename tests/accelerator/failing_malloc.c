/* For tests/accelerator/accelerator_abuse.py, loaded before the C library: malloc and its kin, which fail when
 * told to, or take their time.  Only calls from one range of addresses count, those of the extension.
 *
 * NOTE: glibc offers its own functions under the names below; nothing else does. */

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

static uintptr_t low, high;
static long first, end;  /* calls from `first` up to the one before `end` fail */
static atomic_long seen; /* calls since then */

/* What was allocated and is not yet freed, whoever frees it: each block in one of a few places. */
enum { PLACES = 1 << 16, PROBES = 16 };
static atomic_uintptr_t live[PLACES + PROBES];

void watch_calls_from(uintptr_t from, uintptr_t to)
{
    low = from;
    high = to;
}

void fail_calls(long from, long to)
{
    atomic_store(&seen, 0);
    first = from;
    end = to;
}

long calls_seen(void)
{
    return atomic_load(&seen);
}

long not_freed(void)
{
    long n = 0;
    for (size_t i = 0; i < PLACES + PROBES; i++)
        n += atomic_load(&live[i]) != 0;
    return n;
}

/* Other threads than the one that told so stop here, as if they had no processor, after `of_others`
 * more calls; but not for ever. */
static pthread_t teller;
static atomic_long of_others, stopped, too_long;
static atomic_int stops;
enum { MILLISECONDS = 20000 };

void stop_others(long after)
{
    teller = pthread_self();
    atomic_store(&of_others, after);
    atomic_store(&stopped, 0);
    atomic_store(&stops, after >= 0);
}

long others_stopped(void)
{
    return atomic_load(&stopped);
}

long stopped_too_long(void)
{
    return atomic_load(&too_long);
}

static void stop_here(void)
{
    if (!atomic_load(&stops) || pthread_equal(pthread_self(), teller) ||
        atomic_fetch_sub(&of_others, 1) > 0)
        return;
    atomic_fetch_add(&stopped, 1);
    for (int i = 0; atomic_load(&stops); i++) {
        if (i == MILLISECONDS) {
            atomic_fetch_add(&too_long, 1);
            return;
        }
        usleep(1000);
    }
}

/* Put `new` in the place of `old`, one of them 0, where a block may be noted. */
static int note(void *block, uintptr_t old, uintptr_t new)
{
    atomic_uintptr_t *place = &live[(uintptr_t)block / 16 * 40503 % PLACES];
    for (int i = 0; i < PROBES; i++) {
        uintptr_t expected = old;
        if (atomic_compare_exchange_strong(&place[i], &expected, new))
            return 1;
    }
    return 0;
}

static int is_watched(void *caller)
{
    return (uintptr_t)caller >= low && (uintptr_t)caller < high;
}

static int must_fail(void *caller)
{
    if (!is_watched(caller))
        return 0;
    stop_here();
    long call = atomic_fetch_add(&seen, 1);
    return call >= first && call < end;
}

static void *noted(void *caller, void *memory)
{
    if (memory && is_watched(caller) && !note(memory, 0, (uintptr_t)memory))
        abort(); /* the table is too small for this test */
    return memory;
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t size)
{
    return must_fail(CALLER) ? NULL : noted(CALLER, __libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return must_fail(CALLER) ? NULL : noted(CALLER, __libc_calloc(n, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return must_fail(CALLER) ? NULL : noted(CALLER, __libc_memalign(alignment, size));
}

void *realloc(void *memory, size_t size)
{
    if (must_fail(CALLER))
        return NULL;
    int was_noted = memory && note(memory, (uintptr_t)memory, 0);
    void *moved = __libc_realloc(memory, size);
    if (was_noted && moved)
        note(moved, 0, (uintptr_t)moved);
    else if (was_noted && size)
        note(memory, 0, (uintptr_t)memory);
    else if (!memory)
        noted(CALLER, moved);
    return moved;
}

void free(void *memory)
{
    if (memory)
        note(memory, (uintptr_t)memory, 0);
    __libc_free(memory);
}
