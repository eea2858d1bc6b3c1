/* The public interface of memshim.h. */
#include "shim/memshim.h"

#include "shim/hook.h"

/* Absurd sizes end here, so that a negative one cannot be mistaken for a death. */
static void report(int device, const void *ptr, int64_t bytes, const void *caller)
{
    if (ptr != NULL && bytes != 0 && ms_guard_enter(caller)) {
        ms_serve_range(device, ptr, bytes, UINT64_MAX);
        ms_guard_leave();
    }
}

void memshim_range_born(int device, const void *ptr, size_t bytes)
{
    if (bytes <= INT64_MAX) {
        report(device, ptr, (int64_t)bytes, __builtin_return_address(0));
    }
}

void memshim_range_died(int device, const void *ptr, size_t bytes)
{
    if (bytes <= INT64_MAX) {
        report(device, ptr, -(int64_t)bytes, __builtin_return_address(0));
    }
}

const char *memshim_version(void)
{
    return MEMSHIM_VERSION;
}
