/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the reports through its PLT, as PyTorch's libc10_cuda does: an allocation and a death on
 * CUDA device 3, an allocation on the host, an out-of-memory. Has for pools what 2.8 and 2.7
 * have: their constructors, and the function that sets settings. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t bytes,
                                                           size_t allocated, size_t reserved,
                                                           uint16_t device);
void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t allocated,
                                                         size_t reserved, uint16_t device);

EXPORT void fake_report(void);
EXPORT void fake_report(void)
{
    void *address = (void *)0x1000;
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(address, 300, 300, 400, 0x0301);
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(address, -300, 300, 400, 0x0301);
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(address, 300, 300, 400, 0xff00);
    _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(500, 300, 400, 0x0301);
}

/* What only the caller's own address can find: a function of its own dependency, in a scope that
 * the rest of the program does not see. */
EXPORT void *fake_find(void);
EXPORT void *fake_find(void)
{
    void *volatile found = dlsym(RTLD_DEFAULT, "fake_usages"); /* no tail call */
    return found;
}

static char told[256] = "nothing";

struct string {
    const char *text;
    size_t length;
};

EXPORT void set_settings(const struct string *settings) __asm__(
    "_ZN3c104cuda20CUDACachingAllocator20setAllocatorSettingsERKNSt7__cxx1112basic_"
    "stringIcSt11char_"
    "traitsIcESaIcEEE");
EXPORT void make_pool(char *pool, void *allocator, _Bool user, _Bool on_oom, _Bool whole) __asm__(
    "_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEbbb");

EXPORT void make_old_pool(char *pool, void *allocator, _Bool user) __asm__(
    "_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEb");

EXPORT void set_settings(const struct string *settings)
{
    snprintf(told, sizeof(told), "%.*s", (int)settings->length, settings->text);
}

/* Leaves in the pool what it was told of it. */
EXPORT void make_pool(char *pool, void *allocator, _Bool user, _Bool on_oom, _Bool whole)
{
    sprintf(pool, "%s: %p %d%d%d", told, allocator, user, on_oom, whole);
}

EXPORT void make_old_pool(char *pool, void *allocator, _Bool user)
{
    sprintf(pool, "%s: %p %d", told, allocator, user);
}
