/* A sentence that explains a failure to people. The code that knows the facts builds the sentence,
 * and the code that knows whether the failure matters prints it. */
#ifndef DLOCK_UTIL_ERRMSG_H
#define DLOCK_UTIL_ERRMSG_H

struct errmsg {
    char text[640];
};

/* Sets the text, cut to what fits. Foreign text is escaped only when the text is printed
 * (util/message.h). `why` may be NULL if the caller does not want the text. */
__attribute__((format(printf, 2, 3))) void errmsg_set(struct errmsg *why, const char *format, ...);

/* Like errmsg_set(), but returns `result`, a value of any enum. */
__attribute__((format(printf, 3, 4))) unsigned errmsg_fail(struct errmsg *why, unsigned result,
                                                           const char *format, ...);

/* Puts a prefix before the existing text: "PREFIX: OLD". `why` may be NULL. */
void errmsg_prefix(struct errmsg *why, const char *prefix);

/* Puts the kind of thing that failed before the existing text: "KIND OLD". */
void errmsg_kind(struct errmsg *why, const char *kind);

#endif
