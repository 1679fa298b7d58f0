#include "util/mbwidth.h"

#include <string.h>
#include <wchar.h>

/* Reads the next character: its bytes, and in *columns its width. */
static size_t next_character(const char *text, size_t left, int *columns)
{
    wchar_t wide;
    mbstate_t state = {0};
    size_t length = mbrtowc(&wide, text, left, &state);
    if (length == 0 || length > left) {
        *columns = 1;
        return 1;
    }
    *columns = wcwidth(wide) >= 0 ? wcwidth(wide) : 1;
    return length;
}

int mbwidth_of(const char *text)
{
    int width = 0, columns;
    for (size_t left = strlen(text); left > 0;) {
        size_t length = next_character(text, left, &columns);
        width += columns;
        text += length;
        left -= length;
    }
    return width;
}

size_t mbwidth_fit(const char *text, int columns, int *used)
{
    size_t fits = 0;
    int more;
    *used = 0;
    for (size_t left = strlen(text); left > 0;) {
        size_t length = next_character(text + fits, left, &more);
        if (*used + more > columns)
            break;
        *used += more;
        fits += length;
        left -= length;
    }
    return fits;
}
