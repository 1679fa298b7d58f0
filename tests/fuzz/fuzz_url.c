/* URLs of Redis: what is accepted fits and can be shown without its login. */
#include "fuzz.h"
#include "redis_url.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct redis_url url;
    struct why why = {""};
    char *input = fuzz_text(data, size);
    if (redis_url_parse(&url, input, &why)) {
        if (url.host_count < 1 || url.host_count > REDIS_HOSTS_MOST || url.shown[0] == '\0' || url.database < 0)
            abort();
        if ((url.hosts[0].host[0] == '\0') == (url.hosts[0].path[0] == '\0'))
            abort();
    } else if (why.text[0] == '\0') {
        abort();
    }
    free(input);
    return 0;
}
