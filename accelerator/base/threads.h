/* Threads, where the system has them. */

#ifndef BPE_BASE_THREADS_H
#define BPE_BASE_THREADS_H

enum { MAX_THREADS = 64 };

/* Share work among up to n threads, at most MAX_THREADS.
 *
 * The caller's thread calls work(context, 0).  Each new thread calls enter(context), and then
 * work(context, i) with an i below n of its own.  This returns as soon as the caller's thread is
 * done: no thread enters after that, but one that did may still be working.  So the memory that
 * `context` points to must last until all threads that entered are done.
 *
 * No call may wait for another, or rely on it: they share the work piece by piece, and the caller
 * does the pieces that nobody else has done.  `enter` only records that a thread entered.
 *
 * The new threads do not hold the interpreter's lock. */
void run_in_threads(unsigned n, void (*enter)(void *context),
                    void (*work)(void *context, unsigned index), void *context);

/* The same, but return only when all threads that entered are done. */
void run_in_threads_and_wait(unsigned n, void (*work)(void *context, unsigned index),
                             void *context);

#endif
