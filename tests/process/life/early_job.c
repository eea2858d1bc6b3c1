/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of its own stand before the C library's, as AddressSanitizer's do, and find those by
 * dlsym before anything else runs: until then they cannot be called. Then it uses the device. */
#include <cuda.h>
#include <dlfcn.h>
#include <string.h>

#include "say.h"

static size_t (*real_strlen)(const char *);
static int (*real_strcmp)(const char *, const char *);
static int (*real_strncmp)(const char *, const char *, size_t);
static char *(*real_strchr)(const char *, int);
static char *(*real_strrchr)(const char *, int);
static char *(*real_strncpy)(char *, const char *, size_t);

size_t strlen(const char *text)
{
    return real_strlen(text);
}

int strcmp(const char *a, const char *b)
{
    return real_strcmp(a, b);
}

int strncmp(const char *a, const char *b, size_t most)
{
    return real_strncmp(a, b, most);
}

char *strchr(const char *text, int wanted)
{
    return real_strchr(text, wanted);
}

char *strrchr(const char *text, int wanted)
{
    return real_strrchr(text, wanted);
}

char *strncpy(char *to, const char *from, size_t most)
{
    return real_strncpy(to, from, most);
}

static void find_real(void)
{
    *(void **)&real_strlen = dlsym(RTLD_NEXT, "strlen");
    *(void **)&real_strcmp = dlsym(RTLD_NEXT, "strcmp");
    *(void **)&real_strncmp = dlsym(RTLD_NEXT, "strncmp");
    *(void **)&real_strchr = dlsym(RTLD_NEXT, "strchr");
    *(void **)&real_strrchr = dlsym(RTLD_NEXT, "strrchr");
    *(void **)&real_strncpy = dlsym(RTLD_NEXT, "strncpy");
}

__attribute__((section(".preinit_array"), used)) static void (*const before_all)(void) = find_real;

int main(void)
{
    CUcontext context;
    CUdeviceptr block;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc(&block, MIB));
    MUST(cuMemFree(block));
    (void)printf("done\n");
    return 0;
}
