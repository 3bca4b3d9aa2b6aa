/* Threads: POSIX's or those of Windows. */

#include <stdbool.h>
#include <stdlib.h>

#include "base/threads.h"

struct task {
    void (*work)(void *context, unsigned index);
    void *context;
    unsigned index;
};

#if defined(_WIN32)

#include <process.h>
#include <windows.h>

typedef HANDLE thread;

static unsigned __stdcall run_task(void *argument)
{
    struct task *task = argument;
    task->work(task->context, task->index);
    return 0;
}

static bool start(thread *new, struct task *task)
{
    *new = (HANDLE)_beginthreadex(NULL, 0, run_task, task, 0, NULL);
    return *new != 0;
}

static void join(thread old)
{
    WaitForSingleObject(old, INFINITE);
    CloseHandle(old);
}

#else

#include <pthread.h>

typedef pthread_t thread;

static void *run_task(void *argument)
{
    struct task *task = argument;
    task->work(task->context, task->index);
    return NULL;
}

static bool start(thread *new, struct task *task)
{
    return pthread_create(new, NULL, run_task, task) == 0;
}

static void join(thread old)
{
    pthread_join(old, NULL); /* it can be joined, and is nowhere else */
}

#endif

int run_in_threads(unsigned n, void (*work)(void *context, unsigned index), void *context)
{
    /* NOTE: not on the stack, which is gone if `work` ends the caller's thread. */
    struct task *tasks = n > 1 ? malloc(MAX_THREADS * sizeof *tasks) : NULL;
    thread threads[MAX_THREADS];
    unsigned started = 1;
    if (n == 0)
        return 0;
    for (; tasks && started < n && started < MAX_THREADS; started++) {
        tasks[started] = (struct task){work, context, started};
        if (!start(&threads[started], &tasks[started]))
            break;
    }
    work(context, 0);
    for (unsigned index = started; index < n; index++)
        work(context, index);
    for (unsigned index = 1; index < started; index++)
        join(threads[index]);
    free(tasks);
    return (int)started;
}
