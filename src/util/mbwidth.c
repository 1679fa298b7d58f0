#include "util/mbwidth.h"

#include "util/text.h"

#include <string.h>
#include <wchar.h>

/* Reads the next character: its bytes, and in *columns its width; if the C library does not
 * know it, as many as it can have. */
static size_t next_character(const char *text, size_t left, int *columns)
{
    wchar_t wide;
    mbstate_t state = {0};
    size_t length = utf8_length(text, left);
    if (length <= 1)
        *columns = 1;
    else if (mbrtowc(&wide, text, left, &state) != length)
        *columns = 2;
    else
        *columns = wcwidth(wide) >= 0 ? wcwidth(wide) : 1;
    return length > 0 ? length : 1;
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
