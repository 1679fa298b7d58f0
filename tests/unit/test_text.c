/* UTF-8, escapes of foreign text, percent-coding, whole numbers, sizes, widths on a terminal. */
#include "unit.h"

#include "util/text.h"

#include <locale.h>
#include <stdlib.h>

TEST(test_utf8)
{
    static const struct {
        const char *name, *bytes;
        size_t left, length;
    } rows[] = {
        {"nothing", "a", 0, 0},
        {"ASCII", "a", 1, 1},
        {"NUL", "", 1, 1},
        {"DEL", "\x7F", 1, 1},
        {"U+0080", "\xC2\x80", 2, 2},
        {"U+07FF", "\xDF\xBF", 2, 2},
        {"U+0800", "\xE0\xA0\x80", 3, 3},
        {"U+D7FF", "\xED\x9F\xBF", 3, 3},
        {"U+E000", "\xEE\x80\x80", 3, 3},
        {"U+FFFF", "\xEF\xBF\xBF", 3, 3},
        {"U+10000", "\xF0\x90\x80\x80", 4, 4},
        {"U+10FFFF", "\xF4\x8F\xBF\xBF", 4, 4},
        {"followed by more", "\xC3\xBCx", 3, 2},
        {"a byte that continues nothing", "\x80", 1, 0},
        {"overlong, 2 bytes", "\xC0\xAF", 2, 0},
        {"overlong, 2 bytes, C1", "\xC1\xBF", 2, 0},
        {"overlong, 3 bytes", "\xE0\x9F\xBF", 3, 0},
        {"overlong, 4 bytes", "\xF0\x8F\xBF\xBF", 4, 0},
        {"the first surrogate", "\xED\xA0\x80", 3, 0},
        {"the last surrogate", "\xED\xBF\xBF", 3, 0},
        {"above U+10FFFF", "\xF4\x90\x80\x80", 4, 0},
        {"a lead of 5 bytes", "\xF8\x88\x80\x80", 4, 0},
        {"FF", "\xFF", 1, 0},
        {"cut off, 2 bytes", "\xC3", 1, 0},
        {"cut off, 3 bytes", "\xE2\x98", 2, 0},
        {"cut off by `left`", "\xE2\x98\x83", 2, 0},
        {"cut off, 4 bytes", "\xF0\x9F\x98", 3, 0},
        {"a second byte that continues nothing", "\xC3(", 2, 0},
        {"a third byte that continues nothing", "\xE2\x98(", 3, 0},
        {"a fourth byte that continues nothing", "\xF0\x9F\x98(", 4, 0},
    };
    FOR_ROWS(row, rows)
    row_int(row->name, utf8_length(row->bytes, row->left), row->length);
}

TEST(test_escape)
{
    static const struct {
        const char *name, *text, *shown;
        bool control, reorders; /* of the first character */
    } rows[] = {
        {"plain", "a b", "a b", false, false},
        {"nothing", "", "", true, false},
        {"beyond ASCII", "\xC3\xBC\xE2\x98\x83\xF0\x9F\x98\x80",
         "\xC3\xBC\xE2\x98\x83\xF0\x9F\x98\x80", false, false},
        {"a backslash stays", "a\\x1B", "a\\x1B", false, false},
        {"ESC", "\x1B[31m", "\\x1B[31m", true, false},
        {"newline", "\nx", "\\x0Ax", true, false},
        {"tab", "\tx", "\\x09x", true, false},
        {"DEL", "\x7F", "\\x7F", true, false},
        {"C1: CSI", "\xC2\x9B", "\\xC2\\x9B", true, false},
        {"the last of C1", "\xC2\x9F", "\\xC2\\x9F", true, false},
        {"right behind C1", "\xC2\xA0", "\xC2\xA0", false, false},
        {"U+061C", "\xD8\x9C", "\\xD8\\x9C", false, true},
        {"U+061D", "\xD8\x9D", "\xD8\x9D", false, false},
        {"U+200D, a joiner", "\xE2\x80\x8D", "\xE2\x80\x8D", false, false},
        {"U+200E", "\xE2\x80\x8E", "\\xE2\\x80\\x8E", false, true},
        {"U+200F", "\xE2\x80\x8F", "\\xE2\\x80\\x8F", false, true},
        {"U+2027", "\xE2\x80\xA7", "\xE2\x80\xA7", false, false},
        {"U+2028", "\xE2\x80\xA8", "\\xE2\\x80\\xA8", false, true},
        {"U+202E", "\xE2\x80\xAE", "\\xE2\\x80\\xAE", false, true},
        {"U+202F", "\xE2\x80\xAF", "\xE2\x80\xAF", false, false},
        {"U+2065", "\xE2\x81\xA5", "\xE2\x81\xA5", false, false},
        {"U+2066", "\xE2\x81\xA6", "\\xE2\\x81\\xA6", false, true},
        {"U+2069", "\xE2\x81\xA9", "\\xE2\\x81\\xA9", false, true},
        {"U+206A", "\xE2\x81\xAA", "\xE2\x81\xAA", false, false},
        {"no UTF-8", "a\xFF\xC3", "a\\xFF\\xC3", false, false},
        {"one bad byte in good ones", "\xE2\x98(", "\\xE2\\x98(", false, false},
    };
    char text[64];
    FOR_ROWS(row, rows)
    {
        row_text(row->name, text_escape(text, sizeof text, row->text), row->shown);
        size_t length = utf8_length(row->text, strlen(row->text) + 1);
        if (length > 0) {
            row_int(row->name, utf8_is_control(row->text, length), row->control);
            row_int(row->name, utf8_reorders(row->text, length), row->reorders);
        }
    }
}

TEST(test_escape_cut)
{
    static const struct {
        const char *text;
        size_t size;
        const char *shown;
    } rows[] = {
        {"abc", 4, "abc"},
        {"abc", 3, "ab"},
        {"abc", 1, ""},
        {"a\x1B", 6, "a\\x1B"},
        {"a\x1B", 5, "a"}, /* an escape is not cut */
        {"a\xC3\xBC", 4, "a\xC3\xBC"},
        {"a\xC3\xBC", 3, "a"}, /* nor is a character */
        {"\xC2\x9B!", 8, ""},
    };
    char text[64];
    FOR_ROWS(row, rows)
    {
        row_text(row->text, text_escape(text, row->size, row->text), row->shown);
        text_copy(text, row->size, "0123456789");
        row_int(row->text, strlen(text), row->size - 1);
    }
}

TEST(test_locale)
{
    static const struct {
        const char *all, *ctype, *lang; /* NULL: not set */
        bool utf8;
    } rows[] = {
        {NULL, NULL, NULL, true}, /* cron, a unit, a container */
        {"", "", "", true},
        {"C", NULL, NULL, false},
        {NULL, NULL, "POSIX", false},
        {NULL, NULL, "de_DE", false},
        {NULL, NULL, "de_DE.ISO-8859-15@euro", false},
        {NULL, NULL, "en_US.UTF-8", true},
        {NULL, "ja_JP.utf8", "C", true},
        {"C.UTF-8", "C", "C", true},
        {"C", "C.UTF-8", "C.UTF-8", false},
        {"", "C", "C.UTF-8", false},
        {"", "", "C", false},
    };
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    char text[64], row_name[64];
    FOR_ROWS(row, rows)
    {
        const char *const values[] = {row->all, row->ctype, row->lang};
        for (int i = 0; i < 3; i++)
            if (values[i] != NULL)
                setenv(names[i], values[i], 1);
            else
                unsetenv(names[i]);
        snprintf(row_name, sizeof row_name, "row %d", (int)(row - rows));
        row_text(row_name, text_escape(text, sizeof text, "a\xC3\x9F b~\\\x1B"),
                 row->utf8 ? "a\xC3\x9F b~\\\\x1B" : "a\\xC3\\x9F b~\\\\x1B");
    }
    unsetenv("LC_ALL");
    setenv("LANG", "C", 1);
    row_text("no half of an escape", text_escape(text, 9, "a\xE2\x98\x83"), "a");
    setenv("LC_ALL", "C.UTF-8", 1);
}

TEST(test_percent_encode)
{
    static const struct {
        const char *text, *also, *coded;
    } rows[] = {
        {"", "", ""},
        {"a b", "", "a b"},
        {"a b", " ", "a%20b"},
        {"50%", "", "50%25"},
        {"a/b", "/", "a%2Fb"},
        {"a/b", "", "a/b"},
        {"\n\x7F", "", "%0A%7F"},
        {"\xC3\xBC", "/", "\xC3\xBC"},
    };
    char coded[64], text[64];
    FOR_ROWS(row, rows)
    {
        row_int(row->text, percent_encode(coded, sizeof coded, row->text, row->also),
                strlen(row->coded));
        row_text(row->text, coded, row->coded);
        row_true(row->text, percent_decode(text, sizeof text, coded, strlen(coded)));
        row_text(row->text, text, row->text);
    }
    row_int("no room for a code", percent_encode(coded, 4, "ab%", ""), 5);
    row_text("no room for a code", coded, "ab");
    row_int("no room at all", percent_encode(coded, 0, "ab%", ""), 5);
}

TEST(test_percent_decode)
{
    static const struct {
        const char *coded;
        size_t size;
        const char *text; /* NULL: it is refused */
    } rows[] = {
        {"", 1, ""},       {"abc", 4, "abc"},       {"abc", 3, NULL},
        {"", 0, NULL},     {"%41%7a%7A", 4, "Azz"}, {"%2f%2F", 9, "//"},
        {"%25", 9, "%"},   {"%FF", 9, "\xFF"},      {"+", 9, "+"},
        {"%00", 9, NULL},  {"a%", 9, NULL},         {"a%4", 9, NULL},
        {"%zz", 9, NULL},  {"%4g", 9, NULL},        {"%g4", 9, NULL},
        {"%%41", 9, NULL}, {"% 1", 9, NULL},
    };
    char text[16];
    FOR_ROWS(row, rows)
    {
        bool good = percent_decode(text, row->size, row->coded, strlen(row->coded));
        row_int(row->coded, good, row->text != NULL);
        if (good)
            row_text(row->coded, text, row->text);
    }
    row_false("a NUL in it", percent_decode(text, sizeof text, "a\0b", 3));
    row_false("cut in the middle of a code", percent_decode(text, sizeof text, "%41", 2));
}

TEST(test_numbers)
{
    static const struct {
        const char *text;
        int64_t least, most;
        bool good;
        int64_t value;
    } rows[] = {
        {"0", 0, 255, true, 0},
        {"255", 0, 255, true, 255},
        {"007", 0, 255, true, 7},
        {"-1", -1, 255, true, -1},
        {"-0", 0, 255, true, 0},
        {"9223372036854775807", 0, INT64_MAX, true, INT64_MAX},
        {"-9223372036854775808", INT64_MIN, 0, true, INT64_MIN},
        {"256", 0, 255, false, 0},
        {"-1", 0, 255, false, 0},
        {"9223372036854775808", 0, INT64_MAX, false, 0},
        {"99999999999999999999", 0, INT64_MAX, false, 0},
        {"", 0, 255, false, 0},
        {"-", -9, 255, false, 0},
        {"--1", -9, 255, false, 0},
        {"+1", 0, 255, false, 0},
        {" 1", 0, 255, false, 0},
        {"1 ", 0, 255, false, 0},
        {"1.5", 0, 255, false, 0},
        {"1e2", 0, 255, false, 0},
        {"0x10", 0, 255, false, 0},
        {"abc", 0, 255, false, 0},
        {"7x", 0, 255, false, 0},
        {"\xD9\xA1", 0, 255, false, 0}, /* an Arabic digit */
    };
    FOR_ROWS(row, rows)
    {
        int64_t value = 42;
        row_int(row->text, number_parse(row->text, row->least, row->most, &value), row->good);
        row_int(row->text, value, row->good ? row->value : 42);
    }
}

TEST(test_sizes)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0 bytes"},        {999, "999 bytes"},  {1000, "1 kB"},
        {1099, "1 kB"},        {1100, "1.1 kB"},    {9999, "9.9 kB"},
        {10999, "10 kB"},      {1250000, "1.2 MB"}, {UINT64_C(81752536000), "81 GB"},
        {UINT64_MAX, "18 EB"},
    };
    char text[SIZE_TEXT_SIZE];
    FOR_ROWS(row, rows)
    row_text(row->text, size_rounded(row->bytes, text), row->text);
}

TEST(test_width)
{
    static const struct {
        const char *name, *text;
        int width;   /* of the whole text */
        int columns; /* of a field */
        size_t fits; /* bytes that fit there */
        int used;
    } rows[] = {
        {"nothing", "", 0, 5, 0, 0},
        {"ASCII", "abc", 3, 2, 2, 2},
        {"all of it", "abc", 3, 3, 3, 3},
        {"no room", "abc", 3, 0, 0, 0},
        {"2 bytes, one column", "\xC3\xBC\xC3\xBC", 2, 1, 2, 1},
        {"wide", "\xE6\x97\xA5\xE6\x9C\xAC", 4, 3, 3, 2},
        {"a combining accent belongs to its letter", "e\xCC\x81x", 2, 1, 3, 1},
        {"a bad byte is a column",
         "a\xFF"
         "b",
         3, 2, 2, 2},
        {"a character that is cut off", "a\xE2\x98", 3, 9, 3, 3},
        {"a control character is a column", "a\x1B", 2, 9, 2, 2},
    };
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL && setlocale(LC_CTYPE, "en_US.UTF-8") == NULL)
        unit_fail(__FILE__, __LINE__, "no locale with UTF-8");
    FOR_ROWS(row, rows)
    {
        int used = -1;
        row_int(row->name, mbwidth_of(row->text), row->width);
        row_int(row->name, mbwidth_fit(row->text, row->columns, &used), row->fits);
        row_int(row->name, used, row->used);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("UTF-8 is what RFC 3629 says, to its borders", test_utf8),
        ENTRY("what can disturb a terminal or a log is escaped, and nothing else", test_escape),
        ENTRY("an escape that does not fit is left out whole", test_escape_cut),
        ENTRY("in a locale that is not UTF-8 all that is not ASCII is escaped", test_locale),
        ENTRY("percent-coding reads back", test_percent_encode),
        ENTRY("a bad code, a NUL and what does not fit are refused", test_percent_decode),
        ENTRY("a whole number: nothing before or after it, within its borders", test_numbers),
        ENTRY("sizes are cut to what a person reads", test_sizes),
        ENTRY("widths on a terminal, and what fits into a field", test_width),
    };
    setenv("LC_ALL", "C.UTF-8", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
