/* The sentence for people that goes with a failure, built where the facts are
 * known and said where it is decided that it matters. */
#ifndef DLOCK_UTIL_ERRMSG_H
#define DLOCK_UTIL_ERRMSG_H

struct errmsg {
    char text[640];
};

/* Sets the text, cut to what fits. Foreign text in it is escaped when it is
 * said (util/message.h), not here. */
__attribute__((format(printf, 2, 3))) void errmsg_set(struct errmsg *why, const char *format, ...);

/* Puts text before what is there already: "PREFIX: OLD". */
void errmsg_prefix(struct errmsg *why, const char *prefix);

#endif
