#include "ui/holder_text.h"

#include <stdio.h>

const char *holder_life_text(enum process_life life)
{
    return life == PROCESS_ENDED    ? " (has ended)"
           : life == PROCESS_HIDDEN ? " (/proc hides it)"
                                    : "";
}

const char *holder_format(const struct holder *holder, const char *life,
                          char text[HOLDER_TEXT_SIZE])
{
    char pid[32] = "";
    if (!holder->known)
        return "another client";
    if (holder->pid > 0)
        snprintf(pid, sizeof pid, ", pid %ld", (long)holder->pid);
    snprintf(text, HOLDER_TEXT_SIZE, "%s@%s%s%s%s%s", holder->user, holder->host, pid, life,
             holder->command[0] != '\0' ? ", " : "", holder->command);
    return text;
}

static const char *slots_format(const struct holder *holder, int asked, char *text, size_t size)
{
    text[0] = '\0';
    if (holder->slots > 0 && asked == holder->slots)
        snprintf(text, size, "%d of %d slots are taken; ", holder->slots_taken, holder->slots);
    else if (holder->slots > 0 && asked > 0)
        snprintf(text, size, "held with --slots=%d; %d were asked for; ", holder->slots, asked);
    return text;
}

const char *holder_refusal_format(const struct holder *holder, int slots, enum process_life life,
                                  char text[HOLDER_TEXT_SIZE])
{
    char who[HOLDER_TEXT_SIZE], asked[96];
    if (holder->refusal == REFUSED_QUEUED)
        return "free, but others have waited longer";
    if (!holder->known)
        return holder->shares ? "held by others who share it" : "held by another client";
    snprintf(text, HOLDER_TEXT_SIZE, "%s%s %s%s", slots_format(holder, slots, asked, sizeof asked),
             holder->kept       ? "released, but kept by --hold-at-least of"
             : holder->detached ? "acquired by"
                                : "held by",
             holder_format(holder, holder_life_text(life), who),
             holder->shares ? ", one of those who share it" : "");
    return text;
}

/* The clock is the holder's: a time ahead of ours would only confuse. */
const char *holder_since_format(const struct holder *holder, char text[HOLDER_TEXT_SIZE])
{
    char time[40] = "";
    if (holder->since_wall_ms > 0 && holder->since_wall_ms <= wall_now_ms() && !holder->kept)
        wall_format_local(holder->since_wall_ms, time, sizeof time);
    snprintf(text, HOLDER_TEXT_SIZE, "%s%s", time[0] != '\0' ? ", since " : "", time);
    return text;
}

const char *pause_format(const struct pause *pause, char text[HOLDER_TEXT_SIZE])
{
    char time[40];
    wall_format_local(wall_after_ms(pause->left) + 999, time, sizeof time);
    snprintf(text, HOLDER_TEXT_SIZE, "paused by %s until %s: %s", pause->by, time, pause->message);
    return text;
}
