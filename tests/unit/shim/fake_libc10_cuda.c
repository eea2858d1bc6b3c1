/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the reports through its PLT, as PyTorch's libc10_cuda does: an allocation and a death on
 * CUDA device 3, an allocation on the host, an out-of-memory. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t bytes,
                                                           size_t allocated, size_t reserved,
                                                           uint16_t device);
void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t allocated,
                                                         size_t reserved, uint16_t device);

__attribute__((visibility("default"))) void fake_report(void);
__attribute__((visibility("default"))) void fake_report(void)
{
    void *address = (void *)0x1000;
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(address, 300, 300, 400, 0x0301);
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(address, -300, 300, 400, 0x0301);
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(address, 300, 300, 400, 0xff00);
    _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(500, 300, 400, 0x0301);
}

/* What only the caller's own address can find: a function of its own dependency, in a scope that
 * the rest of the program does not see. */
__attribute__((visibility("default"))) void *fake_find(void);
__attribute__((visibility("default"))) void *fake_find(void)
{
    void *volatile found = dlsym(RTLD_DEFAULT, "fake_usages"); /* no tail call */
    return found;
}
