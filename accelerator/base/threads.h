/* Threads, where the system has them. */

#ifndef BPE_BASE_THREADS_H
#define BPE_BASE_THREADS_H

enum { MAX_THREADS = 64 };

/* Call work(context, i) once for each i from 0 to n - 1, and return when all calls have returned.
 *
 * The caller's thread does i = 0 and new threads the others, at most MAX_THREADS in all; what no
 * thread could be started for is done by the caller, too, afterwards.  So no call may wait for
 * another.  The new threads do not hold the interpreter's lock.
 *
 * Returns how many threads there were, the caller's included; 0 for n = 0. */
int run_in_threads(unsigned n, void (*work)(void *context, unsigned index), void *context);

#endif
