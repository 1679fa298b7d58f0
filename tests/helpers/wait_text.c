/* wait_text COLUMNS SECONDS [FIELD=VALUE...]: prints the text about a wait of SECONDS for a holder
 * with these fields, cut to COLUMNS (0: the whole text). */
#include "ui/wait_text.h"

#include "util/text.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    static struct wait_text text;
    struct awaited_lock lock = {.name = "job"};
    struct holder holder = {.known = true,
                            .ahead = -1,
                            .pid = 4711,
                            .host = "web3",
                            .user = "ann",
                            .command = "rollup.sh"};
    int64_t until_ms = 0;
    bool died = false, reserved = false;
    const char *why = NULL;
    if (argc < 3 || setlocale(LC_CTYPE, "") == NULL)
        return 64;
    for (int i = 3; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value == NULL)
            return 64;
        *value++ = '\0';
        const struct {
            const char *name;
            bool *flag;
        } flags[] = {{"known", &holder.known}, {"shares", &holder.shares},
                     {"kept", &holder.kept},   {"died", &died},
                     {"reserved", &reserved},  {"detached", &holder.detached}};
        for (size_t at = 0; at < sizeof flags / sizeof *flags; at++)
            if (strcmp(argv[i], flags[at].name) == 0)
                *flags[at].flag = *value == '1';
        if (strcmp(argv[i], "ahead") == 0)
            holder.ahead = atoi(value);
        else if (strcmp(argv[i], "since") == 0)
            holder.since_wall_ms = wall_now_ms() - atoll(value) * 1000;
        else if (strcmp(argv[i], "until") == 0)
            until_ms = wall_now_ms() + atoll(value) * 1000;
        else if (strcmp(argv[i], "name") == 0)
            lock.name = value;
        else if (strcmp(argv[i], "scope") == 0)
            lock.scope = value;
        else if (strcmp(argv[i], "prefix") == 0)
            lock.prefix = value;
        else if (strcmp(argv[i], "why") == 0)
            why = value;
    }
    holder.refusal = reserved ? REFUSED_QUEUED : REFUSED_HELD;
    wait_text_begin(&text, DURATION_S(atoll(argv[2])), lock.name);
    if (why != NULL)
        wait_text_outage(&text, why, DURATION_S(4));
    else
        wait_text_holder(&text, &holder, until_ms, died ? PROCESS_ENDED : PROCESS_LIVES, &lock);
    if (atoi(argv[1]) != 0)
        wait_text_fit(&text, atoi(argv[1]));
    puts(text.line);
    return 0;
}
