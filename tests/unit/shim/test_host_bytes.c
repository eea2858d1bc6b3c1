/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the host may be taken, from a made-up /proc and /sys. */
#include <sys/resource.h>

#include "made_up_root.h"
#include "shim/tables/host_bytes.h"

#define GIB (1ULL << 30)

TestSuite(host_bytes, .init = make_root, .fini = drop_root);

Test(host_bytes, share)
{
    cr_assert_eq(ms_host_share_bytes(0), 0);
    cr_assert_eq(ms_host_share_bytes(2 * GIB), 0);
    cr_assert_eq(ms_host_share_bytes(2 * GIB + 4096), 4096);
    cr_assert_eq(ms_host_share_bytes(64 * GIB), 16 * GIB);
}

Test(host_bytes, nothing_to_read)
{
    cr_assert_eq(ms_host_available_bytes(root), 0);
}

Test(host_bytes, machine_alone)
{
    put("/proc/meminfo", "MemTotal:       33554432 kB\nMemFree:          100 kB\n"
                         "MemAvailable:   16777216 kB\nBuffers: 7 kB\n");
    cr_assert_eq(ms_host_available_bytes(root), 16 * GIB);
}

Test(host_bytes, the_tightest_group_counts)
{
    put("/proc/meminfo", "MemAvailable:   16777216 kB\n");
    put("/proc/self/cgroup", "0::/slice/job\n");
    put("/sys/fs/cgroup/slice/job/memory.max", "max\n");
    put("/sys/fs/cgroup/slice/job/memory.current", "1073741824\n");
    cr_assert_eq(ms_host_available_bytes(root), 16 * GIB);
    put("/sys/fs/cgroup/slice/memory.max", "8589934592\n");
    put("/sys/fs/cgroup/slice/memory.current", "6442450944\n");
    cr_assert_eq(ms_host_available_bytes(root), 2 * GIB);
    put("/sys/fs/cgroup/slice/memory.stat",
        "anon 1\nactive_file 4294967296\ninactive_file 3221225472\n");
    cr_assert_eq(ms_host_available_bytes(root), 5 * GIB, "cache that can go is not in use");
    put("/sys/fs/cgroup/slice/memory.current", "9999999999\n");
    put("/sys/fs/cgroup/slice/memory.stat", "inactive_file 0\n");
    cr_assert_eq(ms_host_available_bytes(root), 0);
}

Test(host_bytes, container_and_first_version)
{
    put("/proc/meminfo", "MemAvailable:   16777216 kB\n");
    put("/proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/docker/0123\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
    cr_assert_eq(ms_host_available_bytes(root), 3 * GIB);
}

/* Of the machine itself, because the root of what is taken cannot be chosen. */
Test(host_bytes, without_descriptors_the_last_measurement_holds)
{
    struct rlimit before;
    const uint64_t available = ms_host_available_bytes("");
    cr_assert_gt(available, 3 * GIB);
    cr_assert(ms_host_take(4096));
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {.rlim_max = before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    const uint64_t seen = ms_host_available_bytes("");
    const bool some = ms_host_take(GIB / 2) && ms_host_take(GIB / 4);
    const bool all = ms_host_take(available - GIB / 2);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_assert_eq(seen, 0);
    cr_assert(some);
    cr_assert_not(all);
}
