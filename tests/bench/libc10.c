/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for PyTorch's libc10.so: the two functions that libc10_cuda calls, doing nothing. */
#include <stddef.h>
#include <stdint.h>

void report_memory(
    void *at, int64_t bytes, size_t allocated, size_t reserved,
    uint16_t device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void report_out_of_memory(
    int64_t bytes, size_t allocated, size_t reserved,
    uint16_t device) __asm__("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");

void report_memory(void *at, int64_t bytes, size_t allocated, size_t reserved, uint16_t device)
{
    (void)at;
    (void)bytes;
    (void)allocated;
    (void)reserved;
    (void)device;
}

void report_out_of_memory(int64_t bytes, size_t allocated, size_t reserved, uint16_t device)
{
    (void)bytes;
    (void)allocated;
    (void)reserved;
    (void)device;
}
