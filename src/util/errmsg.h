/* The sentence for people that explains a failure. The code that knows the facts builds the
 * sentence, and the code that knows whether the failure matters prints it. */
#ifndef DLOCK_UTIL_ERRMSG_H
#define DLOCK_UTIL_ERRMSG_H

struct errmsg {
    char text[640];
};

/* Sets the text, cut to what fits. Foreign text is not escaped here, but when the text is printed
 * (util/message.h). `why` is NULL if the caller does not want the text. */
__attribute__((format(printf, 2, 3))) void errmsg_set(struct errmsg *why, const char *format, ...);

/* Like errmsg_set(), and returns `result`, a value of any enum. */
__attribute__((format(printf, 3, 4))) unsigned errmsg_fail(struct errmsg *why, unsigned result,
                                                           const char *format, ...);

/* Puts a prefix before the existing text: "PREFIX: OLD". `why` may be NULL. */
void errmsg_prefix(struct errmsg *why, const char *prefix);

/* Puts words before the text that name its subject: "KIND OLD". */
void errmsg_kind(struct errmsg *why, const char *kind);

#endif
