/* What holds for all options that were read, wherever they came from. */
#ifndef DLOCK_FUZZ_OPTIONS_H
#define DLOCK_FUZZ_OPTIONS_H

#include "config/options.h"
#include "fuzz.h"

#include <signal.h>

static inline void expect_options(const struct options *options, enum settings_result result,
                                  const struct errmsg *why)
{
    struct errmsg fault = {""};
    if (result != SETTINGS_OK) {
        fuzz_expect(why->text[0] != '\0');
        return;
    }
    if (options->action == ACTION_VERSION || options->action == ACTION_HELP ||
        options->action == ACTION_USAGE)
        return;
    fuzz_expect(options->name == NULL || lock_name_valid(options->name, "", &fault));
    fuzz_expect(options->ttl.ns >= 100 * NS_PER_MS && options->ttl.ns <= 30 * 86400 * NS_PER_S &&
                options->ttl.ns % NS_PER_MS == 0);
    fuzz_expect(options->wait.ns >= 0 && options->retry_for.ns >= 0 &&
                options->hold_at_least.ns >= 0);
    fuzz_expect(options->connect_timeout.ns >= NS_PER_MS);
    fuzz_expect(options->conflict_status >= 0 && options->conflict_status <= 255);
    fuzz_expect(options->stop_signal > 0 && options->stop_signal <= SIGRTMAX);
    fuzz_expect(options->wait_replicas >= 0 && options->wait_replicas <= 100);
    fuzz_expect(options->mode != MODE_SLOTS || (options->slots >= 1 && options->slots <= 10000));
    fuzz_expect(options->owner == NULL || token_valid(options->owner, &fault));
    if (options->action != ACTION_RUN)
        return;
    fuzz_expect((options->command != NULL) != (options->shell_command != NULL));
    struct duration grace = lease_grace(options->ttl, options->grace);
    fuzz_expect(grace.ns >= 0 && grace.ns < options->ttl.ns &&
                options->hold_at_least.ns <= options->ttl.ns);
}

#endif
