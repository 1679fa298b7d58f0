/* For a small stack (ulimit -s). */
#ifndef DLOCK_UTIL_STACK_H
#define DLOCK_UTIL_STACK_H

/* A function whose frame is large and that returns before its caller calls what goes deep:
 * if it were inlined, its frame would be on the stack all the time. */
#define NOT_INLINED __attribute__((noinline))

#endif
