/* What is read of a lock is printed in every possible way, to nowhere. */
#ifndef DLOCK_FUZZ_PRINT_H
#define DLOCK_FUZZ_PRINT_H

#include "fuzz.h"
#include "ui/lock_print.h"
#include "ui/run_times.h"
#include "ui/wait_text.h"

static inline void fuzz_print(const struct lock_state *state)
{
    static FILE *nowhere;
    FILE *screen = stdout;
    struct table table = list_table(true);
    static struct history history;
    int widths[TABLE_COLUMNS_MOST];
    struct wait_text text;
    const struct awaited_lock lock = {.name = "job"};
    nowhere = nowhere != NULL ? nowhere : fopen("/dev/null", "w");
    fuzz_expect(nowhere != NULL);
    stdout = nowhere;
    lock_state_print(state, "job", true);
    lock_state_json_print(state, "job", NULL, "redis");
    fuzz_expect(list_table_add(&table, "job", state, true));
    table_fit(&table, 80, 0, widths);
    table_print(nowhere, &table, widths);
    table_free(&table);
    history_read(&history, state->memory.history);
    fuzz_expect(history_print(nowhere, &history, DURATION_S(60), 80));
    run_within_print("job", &state->memory, run_ended_within(&state->memory, DURATION_S(60)),
                     DURATION_S(60));
    for (size_t i = 0; i < state->owner_count; i++) {
        const struct holder *holder = &state->owners[i].holder;
        wait_text_begin(&text, DURATION_ZERO, "job");
        wait_text_estimate(&text, holder, 10);
        wait_text_holder(&text, holder, wall_after_ms(holder->left), PROCESS_UNKNOWN, &lock);
    }
    stdout = screen;
}

#endif
