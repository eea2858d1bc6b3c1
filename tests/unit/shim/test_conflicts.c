/* SPDX-License-Identifier: Apache-2.0 */
/* What memshim doctor knows to conflict, by the files of a made-up machine and by what is visible.
 * tests/process/spill/test_doctor.py has the signs that are in the environment and in a device's
 * name. */
#include "made_up_root.h"
#include "shim/cli/doctor/conflicts.h"

static size_t look(char *setting, const char *nccl, struct ms_conflict found[MS_CONFLICTS_MAX])
{
    char *const environment[] = {setting, NULL};
    const struct ms_conflict_signs signs = {environment, root, "NVIDIA H200", nccl};
    return ms_doctor_conflicts(&signs, found);
}

/* The one that is found is `name`, by `sign`; none where that is null. */
static void expect(char *setting, const char *name, const char *sign)
{
    struct ms_conflict found[MS_CONFLICTS_MAX];
    const size_t count = look(setting, "", found);
    cr_assert_eq(count, name != NULL ? 1 : 0);
    if (name != NULL && count == 1) {
        cr_assert_str_eq(found[0].name, name);
        cr_assert_str_eq(found[0].by, sign);
    }
}

TestSuite(conflicts, .init = make_root, .fini = drop_root);

Test(conflicts, a_bare_machine_has_none)
{
    expect(NULL, NULL, NULL);
    put("/proc/version", "Linux version 6.1.0 (gcc 12.2.0) #1 SMP\n");
    put("/proc/self/status", "Name:\tmemshim\nTracerPid:\t0\n");
    put("/etc/ld.so.preload", "/usr/lib/libother.so\n");
    expect(NULL, NULL, NULL);
}

Test(conflicts, hami_by_the_file_that_it_mounts)
{
    put("/etc/ld.so.preload", "/usr/local/vgpu/libvgpu.so\n");
    expect(NULL, "HAMi", "/etc/ld.so.preload");
}

Test(conflicts, mps_by_its_default_folder)
{
    put("/tmp/nvidia-mps/control", "");
    expect(NULL, "MPS", "/tmp/nvidia-mps/control");
}

Test(conflicts, wsl)
{
    put("/proc/version", "Linux version 5.15.90.1-microsoft-standard-WSL2 (gcc 9.3.0)\n");
    expect(NULL, "WSL", "/proc/version");
}

Test(conflicts, a_debugger)
{
    put("/proc/self/status", "Name:\tmemshim\nTracerPid:\t4711\n");
    expect(NULL, "cuda-gdb or another debugger", "TracerPid");
}

Test(conflicts, mig_by_what_is_visible)
{
    char visible[] = "CUDA_VISIBLE_DEVICES=MIG-0b5e7b2e-6f1f-5a0e-9d3c-3a4e1c7b2f10";
    expect(visible, "MIG", "CUDA_VISIBLE_DEVICES");
    char plain[] = "CUDA_VISIBLE_DEVICES=0";
    expect(plain, NULL, NULL);
}

/* How many hangs are known of a version of NCCL, under a setting. */
static size_t hangs(char *setting, const char *nccl)
{
    struct ms_conflict found[MS_CONFLICTS_MAX];
    const size_t count = look(setting, nccl, found);
    for (size_t i = 0; i < count; i++) {
        cr_assert_str_eq(found[i].by, "its version");
        cr_assert_str_eq(found[i].name + strlen("NCCL "), nccl);
    }
    return count;
}

Test(conflicts, nccl_by_its_version)
{
    static const struct {
        const char *version;
        size_t known;
    } rows[] = {{"2.18.6", 3}, {"2.19.1", 4}, {"2.19.4", 4}, {"2.20.3", 3}, {"2.26.2", 2},
                {"2.27.3", 1}, {"2.28.7", 1}, {"2.28.9", 0}, {"2.29.3", 0}, {"2.29.7", 1},
                {"2.30.4", 1}, {"2.30.7", 0}, {"2.32.6", 0}, {"", 0},       {"unknown", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert_eq(hangs(NULL, rows[i].version), rows[i].known, "%s", rows[i].version);
    }
}

Test(conflicts, nccl_where_a_setting_avoids_it)
{
    char no_pxn[] = "NCCL_PXN_DISABLE=1";
    char pxn[] = "NCCL_PXN_DISABLE=0";
    char plain[] = "NCCL_CUMEM_ENABLE=0";
    cr_assert_eq(hangs(no_pxn, "2.29.7"), 0);
    cr_assert_eq(hangs(pxn, "2.29.7"), 1);
    cr_assert_eq(hangs(plain, "2.19.4"), 3);
}
