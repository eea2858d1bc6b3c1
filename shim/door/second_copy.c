/* SPDX-License-Identifier: Apache-2.0 */
/* Finds another copy by the first function of memshim.h, which every copy exports. */
#include "shim/door/second_copy.h"

#include <dlfcn.h>
#include <stddef.h>

#include "shim/driver/next_dlsym.h"
#include "shim/memshim.h"

#define EXPORTED_BY_EACH "memshim_version"

/* The loader has bound the exported name to the first file that has it, and the hidden one to this
 * file. So no look-up is needed while a program starts. */
bool ms_copy_before(void)
{
    return memshim_version != ms_own_version;
}

const char *ms_copy_behind(void)
{
    Dl_info behind;
    void *function = ms_real_dlsym(RTLD_NEXT, EXPORTED_BY_EACH);
    return function != NULL && dladdr(function, &behind) != 0 ? behind.dli_fname : NULL;
}
