/* URLs of Redis: what is accepted fits, can be shown without its login, and
 * leads to the same place if its password is cut out. */
#include "fuzz.h"
#include "redis/url.h"

#include <stdlib.h>
#include <string.h>

static const char blanks[] = " \t\r\n\v\f";

static void expect_without_password(const char *text, const struct redis_url *whole)
{
    static struct redis_url cut;
    struct errmsg why = {""};
    char *copy = strdup(text);
    fuzz_expect(copy != NULL);
    url_redact_passwords(copy);
    fuzz_expect(!url_redact_has_password(copy) && redis_url_parse(&cut, copy, &why) &&
                !cut.has_password);
    fuzz_expect(strcmp(cut.shown, whole->shown) == 0 && strcmp(cut.user, whole->user) == 0 &&
                cut.host_count == whole->host_count);
    fuzz_expect(strcmp(cut.hosts[0].path, whole->hosts[0].path) == 0);
    free(copy);
}

static void expect_blotted(const char *text)
{
    static struct redis_url blotted;
    struct errmsg why = {""};
    char *copy = strdup(text);
    fuzz_expect(copy != NULL);
    url_redact_logins(copy);
    fuzz_expect(strlen(copy) == strlen(text));
    for (size_t i = 0; text[i] != '\0'; i++)
        fuzz_expect(copy[i] == text[i] || copy[i] == '*');
    if (redis_url_parse(&blotted, copy, &why) && copy[strcspn(copy, blanks)] == '\0')
        fuzz_expect(blotted.password[strspn(blotted.password, "*")] == '\0' &&
                    blotted.user[strspn(blotted.user, "*")] == '\0');
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct redis_url url;
    struct errmsg why = {""};
    char *input = fuzz_text(data, size);
    if (redis_url_parse(&url, input, &why)) {
        if (url.host_count < 1 || url.host_count > REDIS_HOSTS_MOST || url.shown[0] == '\0' ||
            url.database < 0)
            abort();
        if ((url.hosts[0].host[0] == '\0') == (url.hosts[0].path[0] == '\0'))
            abort();
        if (input[strcspn(input, blanks)] == '\0') /* else it is several */
            expect_without_password(input, &url);
    } else if (why.text[0] == '\0') {
        abort();
    }
    expect_blotted(input);
    free(input);
    return 0;
}
