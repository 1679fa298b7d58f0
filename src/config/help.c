/* popt would begin every text behind the longest of all options and their
 * values: only 22 columns would be left for each, and twice the lines. Here a
 * text begins in a fixed column, on a line of its own if the option reaches
 * that far. */
#include "config/help.h"

#include "config/option_table.h"

#include <stdio.h>
#include <string.h>

#define RUN_FORM "[OPTIONS] NAME [OPTIONS] [--] COMMAND [ARG...]"

enum { TEXT_COLUMN = 30, WIDTH = 80 };

/* The cursor is at the column where the text begins. */
static void print_text(const char *text)
{
    int column = TEXT_COLUMN;
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (column > TEXT_COLUMN && column + 1 + length > WIDTH) {
            printf("\n%*s", TEXT_COLUMN, "");
            column = TEXT_COLUMN;
        } else if (column > TEXT_COLUMN) {
            column += printf(" ");
        }
        column += printf("%.*s", length, text);
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

static void print_option(const struct poptOption *option)
{
    const char letter[] = {'-', option->shortName, ',', '\0'};
    int used = printf("  %3s --%s%s%s", option->shortName != '\0' ? letter : "", option->longName,
                      option_has_value(option) ? "=" : "",
                      option_has_value(option) ? option->argDescrip : "");
    if (used + 2 > TEXT_COLUMN)
        used = printf("\n") - 1;
    printf("%*s", TEXT_COLUMN - used, "");
    print_text(option->descrip);
}

static void print_all(void)
{
    puts("Usage: dlock " RUN_FORM "\n"
         "       dlock --acquire|--attach|--extend|--release [OPTIONS] NAME\n"
         "       dlock --force-release|--status|--ran-within=|--wait-free [OPTIONS] NAME\n"
         "       dlock --pause=DURATION --message=TEXT|--resume [OPTIONS] NAME\n"
         "       dlock --extend|--release|--current [OPTIONS]\n"
         "       dlock --list [OPTIONS] [GLOB]\n"
         "       dlock --doctor|--print-config [OPTIONS] [NAME]");
    for (const struct poptOption *group = option_table; group->arg != NULL; group++) {
        printf("\n%s\n", group->descrip);
        for (const struct poptOption *option = group->arg; option->longName != NULL; option++)
            if (option->descrip != NULL)
                print_option(option);
    }
    puts("\nURL: redis://[USER[:PASSWORD]@]HOST[:PORT][/DB], unix:///PATH[?db=N],\n"
         "redis+sentinel://HOST[:PORT],.../MASTER[/DB], redis+cluster://HOST[:PORT],...;\n"
         "with TLS rediss://, rediss+sentinel://, rediss+cluster://;\n"
         "valkey:// and valkeys:// are redis:// and rediss://.\n"
         "DURATION: 90, 1.5s, 250ms, 1h30m, 10min, 2w.\n"
         "Exit status: the command's own; 124 the lease ended or was lost; 75 held by\n"
         "another; 69 Redis not reachable; 77 not permitted; 64 wrong usage; 78 wrong\n"
         "configuration. Without a command: 0; 1 there is no such lock, it is free, or\n"
         "--doctor finds that no lock can be trusted; 2 held under another token.\n"
         "The manual, dlock(1), has the rest.");
}

void help_print(bool with_texts)
{
    const char *argv[] = {"dlock", NULL};
    if (with_texts) {
        print_all();
        return;
    }
    poptContext context = poptGetContext(NULL, 1, argv, option_table, 0);
    if (context == NULL)
        return;
    poptSetOtherOptionHelp(context, RUN_FORM);
    poptPrintUsage(context, stdout, 0);
    poptFreeContext(context);
}
