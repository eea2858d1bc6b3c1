/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the C library's dlsym and dlvsym, whose names this library exports itself. */
#include "shim/driver/next_dlsym.h"

#include <dlfcn.h>
#include <stddef.h>

#include "shim/driver/elf.h"
#include "shim/process/log.h"

_Atomic(ms_dlsym_t) ms_next_dlsym;
_Atomic(ms_dlvsym_t) ms_next_dlvsym;

/* Stand in where the C library has no such functions by the names that this file was built for. The
 * program's look-ups fail, and it decides what comes of that. */
static void *find_nothing(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    MS_LOG_ONCE(MS_LOG_WARN, "this C library's dlsym was not found, so no look-up of a function "
                             "succeeds; without memshim in LD_PRELOAD they do");
    return NULL;
}

static void *find_no_version(void *handle, const char *name, const char *version)
{
    (void)version;
    return find_nothing(handle, name);
}

/* The C library's functions cannot be looked up by name, because this library exports these names.
 * So they are read from the C library's symbol table. (Before glibc 2.34 they were in libdl.) The
 * function found there is then asked for the plain name, not by dlvsym for a version, so that it
 * also finds another preloaded library's function behind us. Threads that come here together find
 * the same. */
static void find_next(void)
{
    struct ms_loaded_elf elf;
    ms_dlsym_t plain = NULL;
    ms_dlvsym_t versioned = NULL;
    static const char *const homes[] = {"libc.so.6", "libdl.so.2"};
    for (size_t i = 0; i < 2 && (plain == NULL || versioned == NULL); i++) {
        if (ms_elf_of_start(homes[i], &elf)) {
            plain = ms_elf_function(&elf, "dlsym");
            versioned = ms_elf_function(&elf, "dlvsym");
        }
    }
    if (plain == NULL || versioned == NULL) {
        plain = find_nothing;
        versioned = find_no_version;
    }
    ms_dlsym_t next_plain = plain(RTLD_NEXT, "dlsym");
    ms_dlvsym_t next_versioned = plain(RTLD_NEXT, "dlvsym");
    atomic_store_explicit(&ms_next_dlvsym, next_versioned != NULL ? next_versioned : versioned,
                          memory_order_release);
    atomic_store_explicit(&ms_next_dlsym, next_plain != NULL ? next_plain : plain,
                          memory_order_release);
}

ms_dlsym_t ms_next_dlsym_function(void)
{
    if (atomic_load_explicit(&ms_next_dlsym, memory_order_acquire) == NULL) {
        find_next();
    }
    return atomic_load_explicit(&ms_next_dlsym, memory_order_acquire);
}

void *ms_real_dlsym(void *handle, const char *name)
{
    return ms_next_dlsym_function()(handle, name);
}
