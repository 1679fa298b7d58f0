/* The sentence for people that explains a failure. The code that knows the
 * facts builds it, and the code that knows whether it matters prints it. */
#ifndef DLOCK_UTIL_ERRMSG_H
#define DLOCK_UTIL_ERRMSG_H

struct errmsg {
    char text[640];
};

/* Sets the text, cut to what fits. Foreign text in it is escaped when it is
 * printed (util/message.h), not here. NULL: the caller does not want it. */
__attribute__((format(printf, 2, 3))) void errmsg_set(struct errmsg *why, const char *format, ...);

/* The same for what fails with this result, a value of any enum, which it returns. */
__attribute__((format(printf, 3, 4))) unsigned errmsg_fail(struct errmsg *why, unsigned result,
                                                           const char *format, ...);

/* Puts text before the existing one: "PREFIX: OLD". NULL as above. */
void errmsg_prefix(struct errmsg *why, const char *prefix);

/* Puts a word before the text that names its subject: "KIND OLD". */
void errmsg_kind(struct errmsg *why, const char *kind);

#endif
