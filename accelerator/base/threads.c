/* Threads, on POSIX or Windows. */

#include <stdbool.h>
#include <stdlib.h>

#include "base/threads.h"

#if defined(_WIN32)

#include <process.h>
#include <windows.h>

struct task {
    void (*enter)(void *context);
    void (*work)(void *context, unsigned index);
    void *context;
    unsigned index;
};

static unsigned __stdcall run_task(void *argument)
{
    struct task *task = argument;
    task->enter(task->context);
    task->work(task->context, task->index);
    return 0;
}

/* NOTE: this waits for all threads that were started. */
void run_in_threads(unsigned n, void (*enter)(void *context),
                    void (*work)(void *context, unsigned index), void *context)
{
    /* NOTE: not on the stack, which is gone if `work` ends the caller's thread. */
    struct task *tasks = n > 1 ? malloc(MAX_THREADS * sizeof *tasks) : NULL;
    HANDLE threads[MAX_THREADS];
    unsigned started = 1;
    for (; tasks && started < n && started < MAX_THREADS; started++) {
        tasks[started] = (struct task){enter, work, context, started};
        threads[started] = (HANDLE)_beginthreadex(NULL, 0, run_task, &tasks[started], 0, NULL);
        if (!threads[started])
            break;
    }
    work(context, 0);
    for (unsigned index = 1; index < started; index++) {
        WaitForSingleObject(threads[index], INFINITE);
        CloseHandle(threads[index]);
    }
    free(tasks);
}

static void enter_nothing(void *context)
{
    (void)context;
}

void run_in_threads_and_wait(unsigned n, void (*work)(void *context, unsigned index),
                             void *context)
{
    run_in_threads(n, enter_nothing, work, context);
}

#else

#include <pthread.h>

/* If all processors are busy, a new thread may wait for milliseconds until it begins, and as long
 * again when its time slice ends: longer than a batch of a megabyte takes.  So the caller waits for
 * no thread.  A thread that comes late takes another job, or ends.
 *
 * A job is open, which means it is in the list, while its caller is at work. */
struct job {
    void (*enter)(void *context);
    void (*work)(void *context, unsigned index);
    void *context;
    unsigned wanted;  /* threads that may still enter it */
    unsigned entered; /* those that have */
    struct job *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for everything below */
static struct job *jobs;  /* the open ones */
static unsigned wanted;   /* by all of them */
static unsigned starting; /* threads that have not begun */
static pthread_cond_t left = PTHREAD_COND_INITIALIZER; /* somebody left a crew */

/* Fork: the child has none of the threads, and none of their jobs. */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
    jobs = NULL;
    wanted = starting = 0;
    left = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* The body of each new thread. */
static void *enter_job(void *unused)
{
    (void)unused;
    struct job entered = {0}; /* a copy: its caller may be done before this thread is */
    pthread_detach(pthread_self());
    pthread_mutex_lock(&lock);
    starting--;
    struct job *job = jobs;
    while (job && !job->wanted)
        job = job->next;
    if (job) {
        wanted--;
        job->wanted--;
        job->entered++;
        job->enter(job->context);
        entered = *job;
    }
    pthread_mutex_unlock(&lock);
    if (job)
        entered.work(entered.context, entered.entered);
    return NULL;
}

static void open_job(struct job *job)
{
    pthread_t thread;
    pthread_mutex_lock(&lock);
    job->next = jobs;
    jobs = job;
    wanted += job->wanted;
    while (starting < wanted && pthread_create(&thread, NULL, enter_job, NULL) == 0)
        starting++;
    pthread_mutex_unlock(&lock);
}

static void close_job(struct job *job)
{
    pthread_mutex_lock(&lock);
    struct job **place = &jobs;
    while (*place && *place != job)
        place = &(*place)->next;
    if (*place) { /* false in the child of a fork during `work` */
        *place = job->next;
        wanted -= job->wanted;
    }
    pthread_mutex_unlock(&lock);
}

void run_in_threads(unsigned n, void (*enter)(void *context),
                    void (*work)(void *context, unsigned index), void *context)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    /* NOTE: not on the stack, which is gone if `work` ends the caller's thread. */
    struct job *job = n > 1 ? malloc(sizeof *job) : NULL;
    if (!job) {
        work(context, 0);
        return;
    }
    pthread_once(&once, watch_forks);
    job->enter = enter;
    job->work = work;
    job->context = context;
    job->wanted = (n < MAX_THREADS ? n : MAX_THREADS) - 1;
    job->entered = 0;
    open_job(job);
    work(context, 0);
    close_job(job);
    free(job);
}

/* The threads of a job whose caller waits for them. */
struct crew {
    void (*work)(void *context, unsigned index);
    void *context;
    unsigned inside; /* threads that entered and have not left */
};

static void enter_crew(void *context) /* with the lock */
{
    struct crew *crew = context;
    crew->inside++;
}

static void work_in_crew(void *context, unsigned index)
{
    struct crew *crew = context;
    crew->work(crew->context, index);
    if (index == 0)
        return;
    pthread_mutex_lock(&lock);
    crew->inside--;
    pthread_cond_broadcast(&left);
    pthread_mutex_unlock(&lock);
}

void run_in_threads_and_wait(unsigned n, void (*work)(void *context, unsigned index),
                             void *context)
{
    /* NOTE: not on the stack, as above. */
    struct crew *crew = malloc(sizeof *crew);
    if (!crew) {
        work(context, 0);
        return;
    }
    *crew = (struct crew){work, context, 0};
    run_in_threads(n, enter_crew, work_in_crew, crew);
    pthread_mutex_lock(&lock);
    while (crew->inside)
        pthread_cond_wait(&left, &lock);
    pthread_mutex_unlock(&lock);
    free(crew);
}

#endif
