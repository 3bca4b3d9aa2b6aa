/* Runs the accelerator's core without Python: for processors that are emulated, and for sanitizers.
 *
 *     core_driver PATTERN <input >output
 *
 * Both are 32-bit numbers of the machine.  Input: how many ids, the id of each byte, how many
 * merges, three ids for each; then texts, a length and so many bytes each.  Output, for each text:
 * how many pre-tokens and where each ends, how many ids and which.
 *
 * Each text ends where a page begins that must not be read.  Before that, threads share some work. */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
#include <windows.h>
#elif !defined(__wasm__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "base/threads.h"
#include "encode/encode.h"

#if defined(BPE_WITH_AVX2)
#define BLOCK_SCANNERS (has_avx2() ? avx2_scanners : scalar_scanners)
#elif defined(BPE_WITH_NEON)
#define BLOCK_SCANNERS neon_scanners
#else
#define BLOCK_SCANNERS scalar_scanners
#endif

static void fail(const char *problem)
{
    fprintf(stderr, "core_driver: %s\n", problem);
    exit(1);
}

static void *allocate(size_t size)
{
    void *memory = malloc(size ? size : 1);
    if (!memory)
        fail("out of memory");
    return memory;
}

static void read_exactly(void *to, size_t size)
{
    if (fread(to, 1, size, stdin) != size)
        fail("the input is cut off");
}

static uint32_t read_number(void)
{
    uint32_t number;
    read_exactly(&number, sizeof number);
    return number;
}

static void write_numbers(const uint32_t *numbers, size_t count)
{
    uint32_t written = (uint32_t)count;
    fwrite(&written, sizeof written, 1, stdout);
    if (count) /* if not, there may be no array */
        fwrite(numbers, sizeof *numbers, count, stdout);
}

/* Map memory of which the last byte before an unreadable page is at *end. */
static void map_before_guard(size_t room, uint8_t **end)
{
#if defined(_WIN32)
    size_t page = 1 << 16, size = (room + page - 1) / page * page;
    uint8_t *memory = VirtualAlloc(NULL, size + page, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    DWORD before;
    if (!memory || !VirtualProtect(memory + size, page, PAGE_NOACCESS, &before))
        fail("no memory can be mapped");
#elif defined(__wasm__) /* which has no page that must not be read */
    size_t size = room;
    uint8_t *memory = allocate(size);
#else
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t size = (room + page - 1) / page * page;
    uint8_t *memory =
        mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + size, page, PROT_NONE))
        fail("no memory can be mapped");
#endif
    *end = memory + size;
}

/* Work that threads share: each takes the next of some numbers, and adds it up. */
struct sum {
    uint32_t next, users;
    uint32_t of_thread[MAX_THREADS];
};

enum { NUMBERS = 100000 };

static void note_user(void *context)
{
    struct sum *sum = context;
    __atomic_fetch_add(&sum->users, 1, __ATOMIC_RELAXED);
}

static void add_numbers(void *context, unsigned index)
{
    struct sum *sum = context;
    uint32_t number;
    while ((number = __atomic_fetch_add(&sum->next, 1, __ATOMIC_RELAXED)) < NUMBERS)
        sum->of_thread[index] += number % 7;
    if (index)
        __atomic_fetch_sub(&sum->users, 1, __ATOMIC_RELEASE);
}

static void check_threads(void)
{
    for (unsigned n = 1; n <= 2 * MAX_THREADS; n = 2 * n + 1) {
        struct sum sum = {0};
        uint32_t expected = 0, total = 0;
        run_in_threads(n, note_user, add_numbers, &sum);
        while (__atomic_load_n(&sum.users, __ATOMIC_ACQUIRE))
            ; /* what the others took, nobody else adds */
        for (unsigned i = 0; i < NUMBERS; i++)
            expected += i % 7;
        for (unsigned index = 0; index < MAX_THREADS; index++)
            total += sum.of_thread[index];
        if (total != expected)
            fail("threads lose or repeat work");
    }
}

/* Write the ends of all pre-tokens; returns how many there are. */
static size_t scan_all(scanner *scan, const uint8_t *text, size_t size, size_t capacity,
                       uint32_t *ends)
{
    size_t position = 0, total = 0, count;
    size_t some[CHUNK_ROOM];
    while ((count = scan(text, size, &position, some, capacity)) != 0)
        for (size_t i = 0; i < count; i++)
            ends[total++] = (uint32_t)some[i];
    return total;
}

static size_t check_scanners(int pattern, const uint8_t *text, size_t size, uint32_t *ends,
                             uint32_t *others)
{
    size_t count = scan_all(scalar_scanners[pattern], text, size, CHUNK_ROOM, ends);
    for (size_t capacity = SCAN_MARGIN; capacity <= CHUNK_ROOM; capacity += CHUNK)
        if (scan_all(BLOCK_SCANNERS[pattern], text, size, capacity, others) != count ||
            memcmp(ends, others, count * sizeof *ends) != 0)
            fail("the two scanners differ");
    return count;
}

static void load_vocabulary(struct vocabulary *vocabulary)
{
    uint32_t n_ids = read_number(), byte_ids[256];
    read_exactly(byte_ids, sizeof byte_ids);
    uint32_t n_merges = read_number();
    struct merge *merges = allocate(n_merges * sizeof *merges);
    read_exactly(merges, n_merges * sizeof *merges);
    if (vocabulary_load(vocabulary, n_ids, byte_ids, merges, n_merges, 5))
        fail("out of memory");
    free(merges);
}

static int pattern_named(const char *name)
{
    static const char *const names[] = {
#define AS_NAME(id, name, ...) name,
        SPLIT_PATTERNS(AS_NAME)
    };
    for (int pattern = 0; pattern < PATTERN_COUNT; pattern++)
        if (strcmp(names[pattern], name) == 0)
            return pattern;
    fail("no such pattern");
    return 0;
}

int main(int argc, char **argv)
{
    enum { LONGEST = 1 << 20 };
#if defined(_WIN32)
    _setmode(_fileno(stdin), _O_BINARY);
    _setmode(_fileno(stdout), _O_BINARY);
#endif
    if (argc > 2)
        fprintf(stderr, "%s\n", has_avx2() ? "AVX2" : "portable");
    check_threads();
    int pattern = pattern_named(argc > 1 ? argv[1] : "");
    const struct cutter cutter = {.scan = BLOCK_SCANNERS[pattern]};
    struct vocabulary vocabulary;
    load_vocabulary(&vocabulary);
    struct worker *worker = worker_new();
    uint32_t *ends = allocate(LONGEST * sizeof *ends), *others = allocate(LONGEST * sizeof *ends);
    uint8_t *guard;
    map_before_guard(LONGEST, &guard);
    uint32_t size;
    while (worker && fread(&size, sizeof size, 1, stdin) == 1) {
        if (size > LONGEST)
            fail("a text is too long");
        uint8_t *text = guard - size;
        read_exactly(text, size);
        write_numbers(ends, check_scanners(pattern, text, size, ends, others));
        worker->n_ids = 0;
        if (encode_text(&vocabulary, worker, cutter, text, size, true))
            fail("out of memory");
        write_numbers(worker->ids, worker->n_ids);
    }
    worker_free(worker);
    vocabulary_release(&vocabulary);
    free(ends);
    free(others);
    return 0;
}
