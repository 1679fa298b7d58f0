/* Valid names of locks, and what dlock makes of a name: keys, companions, slots, file names; owner
 * tokens; the lines of DLOCK_HELD. */
#include "unit.h"

#include "lock/lock_name.h"
#include "run/outer.h"
#include "store/redis/redis_int.h"

#include <limits.h>

TEST(test_names)
{
    static const struct {
        const char *name, *why; /* NULL: it is good */
    } rows[] = {
        {"job", NULL},
        {"a b", NULL},
        {"/var/lock/x", NULL},
        {"{tag}x", NULL},
        {"a}b", NULL},
        {"%", NULL},
        {"\xC3\xBC\xF0\x9F\x98\x80", NULL},
        {"", "the name is empty"},
        {"a\xFF", "is not valid UTF-8 at byte 2"},
        {"\xC0\xAF", "is not valid UTF-8 at byte 1"},
        {"\xED\xA0\x80", "is not valid UTF-8 at byte 1"},
        {"\xF4\x90\x80\x80", "is not valid UTF-8 at byte 1"},
        {"a\xE2\x98", "is not valid UTF-8 at byte 2"},
        {"a\nb", "has a control character at byte 2"},
        {"a\tb", "has a control character at byte 2"},
        {"\x7F", "has a control character at byte 1"},
        {"ab\xC2\x9B"
         "c",
         "has a control character at byte 3"},
        {"\xC3\xBC\x1B", "has a control character at byte 3"},
    };
    FOR_ROWS(row, rows)
    {
        struct errmsg why = {""};
        row_int(row->name, lock_name_valid(row->name, "the name", &why), row->why == NULL);
        row_has(row->name, why.text, row->why != NULL ? row->why : "");
    }
    static char name[LOCK_NAME_MAX + 2];
    struct errmsg why = {""};
    row_true("1024 bytes",
             lock_name_valid(unit_repeat(name, sizeof name, 'n', LOCK_NAME_MAX), "the name", &why));
    row_false("1025 bytes", lock_name_valid(unit_repeat(name, sizeof name, 'n', LOCK_NAME_MAX + 1),
                                            "the name", &why));
    row_has("1025 bytes", why.text, "the name is 1025 bytes long; at most 1024 are allowed");
}

TEST(test_keys)
{
    static const struct {
        const char *prefix, *name, *key, *meta;
        bool shares_slot;
    } rows[] = {
        {"dlock:", "job", "dlock:job", "{dlock:job}:meta", true},
        {"dlock:team:", "job", "dlock:team:job", "{dlock:team:job}:meta", true},
        {"", "job", "job", "{job}:meta", true},
        {"dlock:", "{tag}x", "dlock:{tag}x", "{tag}dlock:{tag}x:meta", true},
        {"{t}:", "job", "{t}:job", "{t}{t}:job:meta", true},
        {"dlock:", "a{b}c{d}", "dlock:a{b}c{d}", "{b}dlock:a{b}c{d}:meta", true},
        {"dlock:", "a{}b", "dlock:a{}b", "{dlock:a{}b}:meta", false},
        {"dlock:", "a{b", "dlock:a{b", "{dlock:a{b}:meta", true},
        {"dlock:", "a}b", "dlock:a}b", "{dlock:a}b}:meta", false},
    };
    char key[LOCK_KEY_SIZE], companion[2 * LOCK_KEY_SIZE];
    FOR_ROWS(row, rows)
    {
        lock_key_make(key, row->prefix, row->name);
        row_text(row->key, key, row->key);
        lock_key_companion(companion, sizeof companion, key, "meta");
        row_text(row->key, companion, row->meta);
        row_int(row->key, redis_keys_is_shared(key), row->shares_slot);
    }
}

TEST(test_slots)
{
    static const struct {
        const char *key;
        int slot; /* as CLUSTER KEYSLOT says */
    } rows[] = {
        {"", 0},
        {"123456789", 0x31C3}, /* the check value of the CRC */
        {"foo", 12182},
        {"{foo}bar", 12182},
        {"bar{foo}", 12182},
        {"bar{foo}{baz}", 12182},
        {"somekey", 11058},
        {"foo{hash_tag}", 2515},
        {"bar{hash_tag}", 2515},
        {"{user1000}.following", 3443},
        {"user1000", 3443},
        {"foo{{bar}}zap", 4015}, /* of "{bar" */
        {"{bar", 4015},
    };
    FOR_ROWS(row, rows)
    row_int(row->key, redis_slot(row->key), row->slot);
    row_true("an empty tag is none", redis_slot("foo{}{bar}") != redis_slot("bar"));
    row_true("nor is one that is not closed", redis_slot("{foo") != redis_slot("foo"));
}

TEST(test_file_names)
{
    static const struct {
        const char *key, *file;
    } rows[] = {
        {"dlock:job", "dlock:job.lock"},
        {"a/b", "a%2Fb.lock"},
        {"50%", "50%25.lock"},
        {"a\nb", "a%0Ab.lock"},
        {".", "%2E.lock"},
        {".table-0", "%2Etable-0.lock"},
        {"..", "%2E..lock"},
        {"\xC3\xBC", "\xC3\xBC.lock"},
        {"a b", "a b.lock"},
    };
    char file[LOCK_FILE_NAME_SIZE];
    FOR_ROWS(row, rows)
    {
        lock_file_name(file, row->key);
        row_text(row->key, file, row->file);
    }
}

TEST(test_long_file_names)
{
    static const struct {
        const char *name, *unit, *code; /* what the key consists of, and its form in the name */
    } rows[] = {
        {"ASCII", "n", "n"},
        {"two bytes", "\xC3\xBC", "\xC3\xBC"},
        {"three bytes", "\xE2\x98\x83", "\xE2\x98\x83"},
        {"four bytes", "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
        {"codes", "/", "%2F"},
    };
    static char key[LOCK_KEY_SIZE], other[LOCK_KEY_SIZE + 1];
    char file[LOCK_FILE_NAME_SIZE], other_file[LOCK_FILE_NAME_SIZE];
    FOR_ROWS(row, rows)
    {
        for (size_t shift = 0; shift < 4; shift++) { /* wherever the cut falls */
            memset(key, 'x', shift);
            key[shift] = '\0';
            for (size_t i = 0; i < 300; i++)
                strcat(key, row->unit);
            lock_file_name(file, key);
            row_true(row->name, strlen(file) <= NAME_MAX && strlen(file) > NAME_MAX - 8);
            char *tilde = strchr(file, '~');
            row_true(row->name, tilde != NULL && strlen(tilde) == strlen("~.lock") + 36);
            size_t head = (size_t)(tilde - file) - shift;
            row_int(row->name, head % strlen(row->code), 0); /* whole characters and codes */
            row_int(row->name, strncmp(file + shift, row->code, strlen(row->code)), 0);
            snprintf(other, sizeof other, "%s!", key);
            lock_file_name(other_file, other);
            row_true(row->name, strcmp(file, other_file) != 0);
        }
    }
}

TEST(test_tokens)
{
    static const struct {
        const char *token, *why; /* NULL: it is good */
    } rows[] = {
        {"a", NULL},
        {"8d1f2a4e-6b7c-4d8e-9f0a-1b2c3d4e5f60", NULL},
        {"!~", NULL},
        {"dlock:share", NULL},
        {"--attach=5", NULL},
        {"", "0 bytes long; 1 to 256 are allowed"},
        {"a b", "only printable ASCII characters other than spaces are allowed"},
        {"a\n", "only printable ASCII"},
        {"a\x7F", "only printable ASCII"},
        {"\xC3\xBC", "only printable ASCII"},
        {"dlock:shared", "this text is reserved for shared locks and cannot be an owner token"},
    };
    FOR_ROWS(row, rows)
    {
        struct errmsg why = {""};
        row_int(row->token, token_valid(row->token, &why), row->why == NULL);
        row_has(row->token, why.text, row->why != NULL ? row->why : "");
    }
    char token[TOKEN_SIZE + 1], second[TOKEN_SIZE];
    struct errmsg why = {""};
    row_true("256 bytes", token_valid(unit_repeat(token, sizeof token, 'o', 256), &why));
    row_false("257 bytes", token_valid(unit_repeat(token, sizeof token, 'o', 257), &why));
    row_has("257 bytes", why.text, "257 bytes long");
    token_make(token);
    token_make(second);
    row_true(token, token_valid(token, &why) && strlen(token) == 36);
    row_true(token, token[14] == '4' && strchr("89ab", token[19]) != NULL); /* a UUID v4 */
    row_true("two of them", strcmp(token, second) != 0);
}

TEST(test_held)
{
    static const struct {
        const char *name, *text;
        bool good;
        const char *backend, *token, *take_id, *key;
        bool more;
        const char *store;
    } rows[] = {
        {"a line", "redis tok take dlock:job", true, "redis", "tok", "take", "dlock:job", false,
         ""},
        {"a store", "redis?redis=unix:///s&prefix=%20 tok take k", true, "redis", "tok", "take",
         "k", false, "redis=unix:///s&prefix=%20"},
        {"an empty store", "redis? tok take k", true, "redis", "tok", "take", "k", false, ""},
        {"a question in the store", "file?a?b tok take k", true, "file", "tok", "take", "k", false,
         "a?b"},
        {"a question in the key", "file tok take k?", true, "file", "tok", "take", "k?", false, ""},
        {"a store alone", "file?a", false, "", "", "", "", false, ""},
        {"a store without a backend", "?a b c d", false, "", "", "", "", false, ""},
        {"another one behind it", "file a b c\nx", true, "file", "a", "b", "c", true, ""},
        {"spaces in the key", "file a b c d  e", true, "file", "a", "b", "c d  e", false, ""},
        {"an end of line", "file a b c\n", true, "file", "a", "b", "c", true, ""},
        {"nothing", "", false, "", "", "", "", false, ""},
        {"an empty line", "\nfile a b c", false, "", "", "", "", true, ""},
        {"one word", "file", false, "", "", "", "", false, ""},
        {"two words", "file a", false, "", "", "", "", false, ""},
        {"three words", "file a b", false, "", "", "", "", false, ""},
        {"no key", "file a b ", false, "", "", "", "", false, ""},
        {"two spaces", "file  b c d", false, "", "", "", "", false, ""},
        {"a backend that is too long", "0123456789abcdef a b c", false, "", "", "", "", false, ""},
        {"a key on the next line", "file a b\nc d e f", false, "", "", "", "", true, ""},
    };
    FOR_ROWS(row, rows)
    {
        static struct held held;
        const char *at = row->text;
        char store[64];
        row_int(row->name, held_next(&at, &held), row->good);
        row_int(row->name, at != NULL, row->more);
        if (!row->good)
            continue;
        row_text(row->name, held.backend, row->backend);
        snprintf(store, sizeof store, "%.*s", (int)held.store_length, held.store);
        row_text(row->name, store, row->store);
        row_text(row->name, held.token, row->token);
        row_text(row->name, held.take_id, row->take_id);
        row_text(row->name, held.key, row->key);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("a name is 1 to 1024 bytes of UTF-8 without control characters", test_names),
        ENTRY("the key of a name, and its companions, which share its slot", test_keys),
        ENTRY("the slot of a key is that of Redis Cluster's specification", test_slots),
        ENTRY("the file of a key is one name that no other key has", test_file_names),
        ENTRY("a long key's file keeps whole characters, and is told apart by a digest",
              test_long_file_names),
        ENTRY("a token is printable, and a fresh one a UUID v4", test_tokens),
        ENTRY("a line of DLOCK_HELD is taken apart, or is none", test_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
