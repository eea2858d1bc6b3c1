/* SPDX-License-Identifier: Apache-2.0 */
/* Another library's hook, preloaded behind the door: it wraps a function of the driver and asks for
 * the one that comes after itself, and it has a dlsym of its own. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuMemAlloc_v2(void *address, size_t bytes);
EXPORT int cuMemAlloc_v2(void *address, size_t bytes)
{
    int (*next)(void *, size_t) = (int (*)(void *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    return next != NULL ? next(address, bytes) + 1000 : 2000;
}

static int asked;

EXPORT int other_asked(void);
EXPORT int other_asked(void)
{
    return asked;
}

/* Counts and hands on: only for handles, so that nobody's address matters. */
EXPORT void *dlsym(void *handle, const char *name)
{
    void *(*real)(void *, const char *) =
        (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    asked++;
    void *volatile found = real(handle, name); /* no tail call */
    return found;
}

/* Its own function of this name is not what comes after it. */
EXPORT void *other_next(void);
EXPORT void *other_next(void)
{
    void *(*first)(void *, const char *) =
        (void *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "dlsym");
    void *volatile next = first(/* no tail call: this library must be the caller */
                                RTLD_NEXT, "puts");
    return next;
}

EXPORT int puts(const char *text)
{
    return printf("%s\n", text);
}
