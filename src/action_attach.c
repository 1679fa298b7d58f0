#include "action_attach.h"

#include "failure.h"

int action_attach(const struct options *options, struct messages *out)
{
    (void)options;
    return fail(out, FAIL_SYSTEM, STATUS_INTERNAL, "not there yet");
}
