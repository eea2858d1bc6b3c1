/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's libc10 as far as the door knows it: the two reporting functions, and how often the real
 * ones were reached. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static int usages, failures;

EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t bytes,
                                                                  size_t allocated, size_t reserved,
                                                                  uint16_t device);
EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t bytes,
                                                                  size_t allocated, size_t reserved,
                                                                  uint16_t device)
{
    (void)bytes;
    usages += ptr == (void *)0x1000 && allocated == 300 && reserved == 400 &&
              (device == 0x0301 || device == 0xff00);
}

EXPORT void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t allocated,
                                                                size_t reserved, uint16_t device);
EXPORT void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t allocated,
                                                                size_t reserved, uint16_t device)
{
    failures += bytes == 500 && allocated == 300 && reserved == 400 && device == 0x0301;
}

/* PyTorch's get_env. */
EXPORT const char *fake_setting(const char *name);
EXPORT const char *fake_setting(const char *name)
{
    const char *volatile value = getenv(name); /* no tail call: the answer is copied there */
    return value;
}

/* libtorch_python: the program sets PyTorch's settings, and makes a pool; what stands in it. */
struct string {
    const char *text;
    size_t length;
};

void set_settings(const struct string *settings) __asm__(
    "_ZN3c104cuda20CUDACachingAllocator20setAllocatorSettingsERKNSt7__cxx1112basic_"
    "stringIcSt11char_"
    "traitsIcESaIcEEE");
void make_pool(char *pool, void *allocator, _Bool user, _Bool on_oom, _Bool whole) __asm__(
    "_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEbbb");

void make_old_pool(char *pool, void *allocator, _Bool user) __asm__(
    "_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEb");

EXPORT void fake_set(const char *settings);
EXPORT void fake_set(const char *settings)
{
    set_settings(&(struct string){settings, strlen(settings)});
}

EXPORT const char *fake_pool(void *allocator);
EXPORT const char *fake_pool(void *allocator)
{
    static char pool[512];
    make_pool(pool, allocator, 1, 0, 1);
    return pool;
}

EXPORT const char *fake_old_pool(void);
EXPORT const char *fake_old_pool(void)
{
    static char pool[512];
    make_old_pool(pool, NULL, 1);
    return pool;
}

EXPORT int fake_usages(void);
EXPORT int fake_usages(void)
{
    return usages * 10 + failures;
}
