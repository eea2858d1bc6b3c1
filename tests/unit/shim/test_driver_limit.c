/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that others set on this process's device memory, from a made-up /sys and settings. */
#include "made_up_root.h"
#include "shim/tables/driver_limit.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)
#define PCI "0000:C1:00.0"

TestSuite(driver_limit, .init = make_root, .fini = drop_root);

static void expect(struct ms_driver_limit limit, enum ms_limited_by by, uint64_t bytes,
                   uint64_t used_bytes)
{
    cr_expect_eq(limit.by, by);
    cr_expect_eq(limit.bytes, bytes);
    cr_expect_eq(limit.used_bytes, used_bytes);
}

Test(driver_limit, no_group_has_one)
{
    expect(ms_limit_of_group(root, PCI), MS_LIMITED_BY_NOTHING, 0, 0);
    put("/proc/self/cgroup", "0::/slice/job\n");
    put("/sys/fs/cgroup/slice/job/memory.max", "1\n");
    expect(ms_limit_of_group(root, PCI), MS_LIMITED_BY_NOTHING, 0, 0);
    put("/sys/fs/cgroup/slice/job/dmem.max", "nvidia/0000:c1:00.0/vidmem max\n");
    expect(ms_limit_of_group(root, PCI), MS_LIMITED_BY_NOTHING, 0, 0);
}

Test(driver_limit, of_this_device_alone)
{
    put("/proc/self/cgroup", "0::/slice/job\n");
    put("/sys/fs/cgroup/slice/job/dmem.max", "drm/0000:c1:00.0/vram0 1048576\n"
                                             "nvidia/0000:c2:00.0/vidmem 2097152\n"
                                             "nvidia/0000:c1:00.0/vidmem 8589934592\n"
                                             "nvidia/0001:c1:00.0/vidmem 4194304\n");
    expect(ms_limit_of_group(root, PCI), MS_LIMITED_BY_CGROUP, 8 * GIB, 0);
    put("/sys/fs/cgroup/slice/job/dmem.current", "nvidia/0000:c1:00.0/vidmem 1073741824\n");
    expect(ms_limit_of_group(root, PCI), MS_LIMITED_BY_CGROUP, 8 * GIB, 1 * GIB);
    expect(ms_limit_of_group(root, "0000:c3:00.0"), MS_LIMITED_BY_NOTHING, 0, 0);
    expect(ms_limit_of_group(root, ""), MS_LIMITED_BY_NOTHING, 0, 0);
}

Test(driver_limit, the_group_that_leaves_least)
{
    put("/proc/self/cgroup", "0::/slice/job\n");
    put("/sys/fs/cgroup/slice/job/dmem.max", "nvidia/0000:c1:00.0/vidmem 4294967296\n");
    put("/sys/fs/cgroup/slice/dmem.max", "nvidia/0000:c1:00.0/vidmem 8589934592\n");
    expect(ms_limit_of_group(root, PCI), MS_LIMITED_BY_CGROUP, 4 * GIB, 0);
    put("/sys/fs/cgroup/slice/dmem.current", "nvidia/0000:c1:00.0/vidmem 6442450944\n");
    expect(ms_limit_of_group(root, PCI), MS_LIMITED_BY_CGROUP, 8 * GIB, 6 * GIB);
}

Test(driver_limit, of_mps)
{
    expect(ms_limit_of_mps(NULL, 0), MS_LIMITED_BY_NOTHING, 0, 0);
    expect(ms_limit_of_mps("0=1G,1=512MB", 0), MS_LIMITED_BY_MPS, 1 * GIB, 0);
    expect(ms_limit_of_mps("0=1G,1=512MB", 1), MS_LIMITED_BY_MPS, 512 * MIB, 0);
    expect(ms_limit_of_mps("0=1G, 1=512M", 1), MS_LIMITED_BY_MPS, 512 * MIB, 0);
    expect(ms_limit_of_mps("0=1G,1=512MB", 2), MS_LIMITED_BY_NOTHING, 0, 0);
    static const char *const nonsense[] = {
        "", ",", "0", "0=", "0=-1G", "=1G", "1G", "0=99999999999G"};
    for (size_t i = 0; i < sizeof(nonsense) / sizeof(*nonsense); i++) {
        expect(ms_limit_of_mps(nonsense[i], 0), MS_LIMITED_BY_NOTHING, 0, 0);
    }
}

Test(driver_limit, of_pytorch)
{
    char *const none[] = {"PYTORCH_ALLOC_CONF=expandable_segments:True", NULL};
    char *const half[] = {
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,per_process_memory_fraction:0.5", NULL};
    char *const whole[] = {"PYTORCH_ALLOC_CONF=per_process_memory_fraction:1.0", NULL};
    expect(ms_limit_of_torch(none, 8 * GIB), MS_LIMITED_BY_NOTHING, 0, 0);
    expect(ms_limit_of_torch(half, 8 * GIB), MS_LIMITED_BY_TORCH_CONF, 4 * GIB, 0);
    expect(ms_limit_of_torch(whole, 8 * GIB), MS_LIMITED_BY_NOTHING, 0, 0);
}

Test(driver_limit, the_tighter_one)
{
    const struct ms_driver_limit none = {.by = MS_LIMITED_BY_NOTHING};
    const struct ms_driver_limit group = {MS_LIMITED_BY_CGROUP, 4 * GIB, 3 * GIB};
    const struct ms_driver_limit mps = {MS_LIMITED_BY_MPS, 2 * GIB, 0};
    cr_expect_eq(ms_limit_tighter(none, mps).by, MS_LIMITED_BY_MPS);
    cr_expect_eq(ms_limit_tighter(group, none).by, MS_LIMITED_BY_CGROUP);
    cr_expect_eq(ms_limit_tighter(group, mps).by, MS_LIMITED_BY_CGROUP);
}
