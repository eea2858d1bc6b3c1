/* SPDX-License-Identifier: Apache-2.0 */
/* The table of known conflicts. Limits by number (dmem.max, an MPS client's) are not here:
 * shim/tables/driver_limit.h reads them. */
#include "shim/cli/doctor/conflicts.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shim/tables/identity.h"

#define SIGNS 4

/* One of these signs is enough. */
struct conflict_row {
    const char *name;
    const char *libraries[SIGNS]; /* part of a preloaded path */
    const char *variables[SIGNS]; /* set, and not empty */
    /* Null if the two lists suffice; returns the sign that it found, or null. */
    const char *(*find)(const struct ms_conflict_signs *signs);
    const char *says, *advice;
};

/* --- where signs are found -------------------------------------------------------------------- */

static const char *read_text(const struct ms_conflict_signs *signs, const char *path, char *text,
                             size_t text_bytes)
{
    char whole[PATH_MAX];
    size_t bytes = 0;
    (void)snprintf(whole, sizeof whole, "%s%s", signs->root, path);
    FILE *file = fopen(whole, "re");
    if (file != NULL) {
        bytes = fread(text, 1, text_bytes - 1, file);
        (void)fclose(file);
    }
    text[bytes] = '\0';
    return text;
}

static const char *find_mps(const struct ms_conflict_signs *signs)
{
    char whole[PATH_MAX];
    (void)snprintf(whole, sizeof whole, "%s/tmp/nvidia-mps/control", signs->root);
    return access(whole, F_OK) == 0 ? "/tmp/nvidia-mps/control" : NULL;
}

static const char *find_mig(const struct ms_conflict_signs *signs)
{
    const char *visible = ms_environment(signs->environment, "CUDA_VISIBLE_DEVICES");
    if (visible != NULL && strncmp(visible, "MIG-", 4) == 0) {
        return "CUDA_VISIBLE_DEVICES";
    }
    return strstr(signs->device_name, " MIG ") != NULL ? "the device's name" : NULL;
}

/* A vGPU type, such as GRID V100-8Q or NVIDIA A100-10C. */
static const char *find_vgpu(const struct ms_conflict_signs *signs)
{
    const char *dash = strrchr(signs->device_name, '-');
    bool type = false;
    if (dash != NULL) {
        const size_t digits = strspn(dash + 1, "0123456789");
        const char *series = dash + 1 + digits;
        type = digits > 0 && *series != '\0' && strchr("ABCQ", *series) != NULL && !series[1];
    }
    return type || strncmp(signs->device_name, "GRID ", 5) == 0 ? "the device's name" : NULL;
}

static const char *find_wsl(const struct ms_conflict_signs *signs)
{
    char text[512];
    return strcasestr(read_text(signs, "/proc/version", text, sizeof text), "microsoft") != NULL
               ? "/proc/version"
               : NULL;
}

static const char *find_tracer(const struct ms_conflict_signs *signs)
{
    char text[4096];
    static const char key[] = "\nTracerPid:";
    const char *tracer = strstr(read_text(signs, "/proc/self/status", text, sizeof text), key);
    if (tracer == NULL) {
        return NULL;
    }
    tracer += sizeof key - 1;
    tracer += strspn(tracer, " \t");
    return *tracer != '0' && isdigit((unsigned char)*tracer) ? "TracerPid" : NULL;
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct conflict_row rows[] = {
    /* Project-HAMi/HAMi, docs/config.md (CUDA_DISABLE_CONTROL) and its device plugin, which mounts
     * /etc/ld.so.preload. */
    {"HAMi",
     {"libvgpu.so"},
     {"CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_SM_LIMIT"},
     NULL,
     "it hooks the same functions of the driver and counts the same memory under a limit of its "
     "own",
     "use one of the two: CUDA_DISABLE_CONTROL=true in the container leaves HAMi's out, where "
     "that is allowed; else MEMSHIM=off"},
    /* grgalex/nvshare, README.md: it replaces cuMemAlloc by cuMemAllocManaged. */
    {"nvshare",
     {"libnvshare"},
     {NULL},
     NULL,
     "it makes managed memory of what a program allocates, and pages it itself",
     "use one of the two: leave libnvshare.so out of LD_PRELOAD"},
    /* jemalloc's INSTALL.md and gperftools' README: both replace malloc and its kin alone. */
    {"another malloc",
     {"libjemalloc", "libtcmalloc", "libmimalloc"},
     {NULL},
     NULL,
     "it allocates host memory, which memshim does not touch; both can be used together",
     "if a program does not start with both, try it without this one first"},
    /* NVIDIA, Multi-Process Service: memory protection and error containment. */
    {"MPS",
     {NULL},
     {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
      "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"},
     find_mps,
     "clients of one server share the device, and a fault in one of them may end all",
     "set a MEMSHIM_FRACTION for each client, so that together they fit"},
    /* NVIDIA, Multi-Instance GPU User Guide: CUDA device enumeration. */
    {"MIG",
     {NULL},
     {NULL},
     find_mig,
     "the device is one part of a GPU: fractions count for that part, and a process sees one part "
     "only",
     "choose MEMSHIM_FRACTION and MEMSHIM_LIMIT for the size of that part"},
    /* NVIDIA, Virtual GPU Software User Guide: unified memory is off unless enable_uvm is set. */
    {"vGPU",
     {NULL},
     {NULL},
     find_vgpu,
     "the device is a virtual one, where unified memory is off by default: spilling may not work",
     "set enable_uvm for the vGPU on the host, or use a passed-through device"},
    /* NVIDIA, CUDA on WSL User Guide: known limitations. */
    {"WSL",
     {NULL},
     {NULL},
     find_wsl,
     "Windows manages the device's memory and may page it itself; pinned memory is limited, and "
     "managed memory is not migrated on demand",
     "set MEMSHIM_LIMIT below what Windows leaves, or run on Linux itself"},
    /* The parts that both packages install: redistributables of CUDA 13.0. */
    {"compute-sanitizer or Nsight Compute",
     {"compute-sanitizer", "libsanitizer-collection", "libTreeLauncher", "libInterceptorInjection"},
     {NULL},
     NULL,
     "it patches or replays kernels and takes device memory of its own; memory that memshim "
     "serves is one large allocation to it",
     "use MEMSHIM=off to look for invalid addresses: every allocation then comes from the driver"},
    /* NVIDIA, CUDA-GDB: environment variables. */
    {"cuda-gdb or another debugger",
     {NULL},
     {"CUDA_DEBUGGER_SOFTWARE_PREEMPTION", "CUDA_DEVICE_WAITS_ON_EXCEPTION"},
     find_tracer,
     "while a kernel is stopped no queued work completes, so waits for memory time out",
     "raise MEMSHIM_WAIT_MS, or debug with MEMSHIM=off"},
    /* NVIDIA, Nsight Systems; NVTX 3, nvtxInit.h: one injection is loaded at most. */
    {"an injected profiler",
     {"libToolsInjection"},
     {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"},
     NULL,
     "a profiler such as Nsight Systems is loaded into the program; NVTX ranges go to one listener "
     "alone",
     "if steps or tags are missing in the report, run without the profiler, or call "
     "memshim_step"},
};

/* A range of NCCL's versions with a known hang, as NCCL_VERSION_CODE. Hangs that were seen only
 * once, or that no release is known to fix, are not listed. For NCCL's registration of memory in
 * several chunks during CUDA graphs see shim/frameworks/nccl.h. */
struct nccl_row {
    int first, mended;
    const char *variable, *value; /* the setting that avoids it; null: none */
    const char *says, *advice;
};

static const struct nccl_row nccl_rows[] = {
    /* NVIDIA/nccl, release notes of 2.20.3 ("hang during A2A connection"); nccl#1116, nccl#1134. */
    {21901, 22003, "NCCL_CUMEM_ENABLE", "0",
     "an all-to-all between several machines may hang while it connects",
     "update NCCL to 2.20.3 or later, or set NCCL_CUMEM_ENABLE=0"},
    /* NVIDIA/nccl, release notes of 2.26.2: connection setup, and the progress thread. */
    {0, 22602, NULL, NULL,
     "communicators that share resources and are made in one group may hang while they connect",
     "update NCCL to 2.26.2 or later"},
    /* NVIDIA/nccl, release notes of 2.27.3; 2.26.5 works around it on NVLink across machines. */
    {0, 22703, NULL, NULL, "an all-to-all among more than 80 ranks may hang",
     "update NCCL to 2.27.3 or later, where a job has as many ranks"},
    /* NVIDIA/nccl, release notes of 2.28.9. */
    {0, 22809, NULL, NULL,
     "the program's thread and NCCL's own may see their work in different orders, and hang at "
     "large scale",
     "update NCCL to 2.28.9 or later, where a job runs on many machines"},
    /* NVIDIA, cuBLASMp's and cuEST's known issues. */
    {22907, 23007, "NCCL_PXN_DISABLE", "1", "jobs of several machines with InfiniBand may hang",
     "update NCCL to 2.30.7 or later, or set NCCL_PXN_DISABLE=1"},
};
_Static_assert(sizeof rows / sizeof *rows + sizeof nccl_rows / sizeof *nccl_rows <=
                   MS_CONFLICTS_MAX,
               "all may be found at once");

static size_t find_nccl(const struct ms_conflict_signs *signs, struct ms_conflict *found)
{
    int major = 0, minor = 0, patch = 0;
    size_t count = 0;
    if (sscanf(signs->nccl, "%3d.%2d.%2d", &major, &minor, &patch) != 3) {
        return 0;
    }
    const int version = major * 10000 + minor * 100 + patch;
    for (size_t i = 0; i < sizeof nccl_rows / sizeof *nccl_rows; i++) {
        const struct nccl_row *row = &nccl_rows[i];
        const char *set =
            row->variable != NULL ? ms_environment(signs->environment, row->variable) : NULL;
        const bool avoided = set != NULL && strcmp(set, row->value) == 0;
        if (version >= row->first && version < row->mended && !avoided) {
            found[count] = (struct ms_conflict){"", "its version", row->says, row->advice};
            (void)snprintf(found[count].name, sizeof found[count].name, "NCCL %d.%d.%d", major,
                           minor, patch);
            count++;
        }
    }
    return count;
}

static const char *find(const struct conflict_row *row, const struct ms_conflict_signs *signs,
                        const char *preloaded)
{
    const char *before = ms_environment(signs->environment, "LD_PRELOAD");
    for (int i = 0; i < SIGNS && row->libraries[i] != NULL; i++) {
        if (before != NULL && strstr(before, row->libraries[i]) != NULL) {
            return "LD_PRELOAD";
        }
        if (strstr(preloaded, row->libraries[i]) != NULL) {
            return "/etc/ld.so.preload";
        }
    }
    for (int i = 0; i < SIGNS && row->variables[i] != NULL; i++) {
        const char *value = ms_environment(signs->environment, row->variables[i]);
        if (value != NULL && value[0] != '\0') {
            return row->variables[i];
        }
    }
    return row->find != NULL ? row->find(signs) : NULL;
}

size_t ms_doctor_conflicts(const struct ms_conflict_signs *signs,
                           struct ms_conflict found[MS_CONFLICTS_MAX])
{
    char preloaded[4096];
    size_t count = 0;
    (void)read_text(signs, "/etc/ld.so.preload", preloaded, sizeof preloaded);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *by = find(&rows[i], signs, preloaded);
        if (by != NULL) {
            found[count] = (struct ms_conflict){"", by, rows[i].says, rows[i].advice};
            (void)snprintf(found[count].name, sizeof found[count].name, "%s", rows[i].name);
            count++;
        }
    }
    return count + find_nccl(signs, found + count);
}
