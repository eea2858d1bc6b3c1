/* SPDX-License-Identifier: Apache-2.0 */
/* Finds another copy by memshim.h's first function, which each one exports. */
#include "shim/door/second_copy.h"

#include <dlfcn.h>
#include <stddef.h>

#include "shim/driver/next_dlsym.h"

#define EXPORTED_BY_EACH "memshim_version"

/* The file that this function is in, if it is not this one. */
static bool find_other(void *function, Dl_info *other)
{
    Dl_info own;
    return function != NULL && dladdr((const void *)find_other, &own) != 0 &&
           dladdr(function, other) != 0 && other->dli_fbase != own.dli_fbase;
}

bool ms_copy_before(void)
{
    Dl_info other;
    return find_other(ms_real_dlsym(RTLD_DEFAULT, EXPORTED_BY_EACH), &other);
}

const char *ms_copy_behind(void)
{
    Dl_info other;
    return find_other(ms_real_dlsym(RTLD_NEXT, EXPORTED_BY_EACH), &other) ? other.dli_fname : NULL;
}
