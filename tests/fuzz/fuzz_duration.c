/* Durations: what is read is written in a form that reads as the same, unless it is
 * as good as infinite. */
#include "fuzz.h"
#include "util/clock.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct duration first, second;
    char text[DURATION_TEXT_SIZE], *input = fuzz_text(data, size);
    if (duration_parse(input, &first) == DURATION_OK && first.ns % NS_PER_MS == 0 &&
        first.ns < DURATION_FOREVER.ns) {
        duration_format(first, text, sizeof text);
        if (first.ns < 0 || duration_parse(text, &second) != DURATION_OK || second.ns != first.ns)
            abort();
    }
    free(input);
    return 0;
}
