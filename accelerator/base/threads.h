/* Threads, where the system has them. */

#ifndef BPE_BASE_THREADS_H
#define BPE_BASE_THREADS_H

enum { MAX_THREADS = 64 };

/* Share work among up to n threads, at most MAX_THREADS; return when it is done.
 *
 * The caller's thread calls work(context, 0).  Each new thread calls work(context, i) once, with an
 * i below n of its own.  No call may wait for another, or rely on it: they take what is to be done
 * bit by bit, and the caller does what nobody else takes.  A thread that could not be started, or
 * that has not begun by the time the caller is done, is not waited for, and never calls `work`.
 *
 * The new threads do not hold the interpreter's lock. */
void run_in_threads(unsigned n, void (*work)(void *context, unsigned index), void *context);

#endif
