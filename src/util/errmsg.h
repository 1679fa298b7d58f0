/* The sentence for people that explains a failure. The code that knows the
 * facts builds it, and the code that knows whether it matters prints it. */
#ifndef DLOCK_UTIL_ERRMSG_H
#define DLOCK_UTIL_ERRMSG_H

struct errmsg {
    char text[640];
};

/* Sets the text, cut to what fits. Foreign text in it is escaped when it is
 * printed (util/message.h), not here. */
__attribute__((format(printf, 2, 3))) void errmsg_set(struct errmsg *why, const char *format, ...);

/* The same, with the result that it explains as its value. */
#define errmsg_fail(why, result, ...) (errmsg_set(why, __VA_ARGS__), (result))

/* Puts text before the existing one: "PREFIX: OLD". */
void errmsg_prefix(struct errmsg *why, const char *prefix);

#endif
