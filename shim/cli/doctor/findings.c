/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences of memshim doctor: what each fact means, and what to do about it. */
#include "shim/cli/doctor/findings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/units.h"
#include "shim/tables/driver_limit.h"
#include "shim/tables/identity.h"
#include "shim/tables/probe_codes.h"
#include "shim/tables/torch_conf.h"

const char *const ms_doctor_level_names[] = {"ok", "limited", "missing"};

__attribute__((format(printf, 6, 7))) static void say(struct ms_doctor_findings *out,
                                                      const char *topic, int device,
                                                      enum ms_doctor_level level,
                                                      const char *advice, const char *format, ...)
{
    if (out->count == MS_DOCTOR_FINDINGS_MAX) {
        return;
    }
    struct ms_doctor_finding *finding = &out->list[out->count++];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is started right above */
    (void)vsnprintf(finding->says, sizeof(finding->says), format, arguments);
    va_end(arguments);
    finding->topic = topic;
    finding->device = device;
    finding->level = level;
    finding->advice = advice;
}

bool ms_doctor_serves(const struct ms_doctor_facts *facts)
{
    return facts->load == MS_CLI_LOADED && facts->device_count > 0;
}

/* --- the driver and its devices --------------------------------------------------------------- */

static void find_driver(const struct ms_doctor_facts *facts, struct ms_doctor_findings *out)
{
    switch (facts->load) {
    case MS_CLI_NO_LIBRARY:
        say(out, "driver", -1, MS_DOCTOR_MISSING,
            "install NVIDIA's driver, or start the container with access to the GPUs; on a machine "
            "without one, memshim dry-run runs a command on a simulated GPU",
            "no driver was found: libcuda.so.1 cannot be loaded");
        return;
    case MS_CLI_TOO_OLD:
        say(out, "driver", -1, MS_DOCTOR_MISSING, "install a driver for CUDA 11 or later",
            "the driver is too old: it lacks virtual memory management (CUDA 10.2)");
        return;
    case MS_CLI_NO_INIT:
        say(out, "driver", -1, MS_DOCTOR_MISSING,
            "check the output of nvidia-smi, and whether CUDA_VISIBLE_DEVICES names a device",
            "the driver could not be initialized: %s (%d)",
            facts->init_name[0] != '\0' ? facts->init_name : "cuInit failed", facts->init_result);
        return;
    case MS_CLI_LOADED:
        break;
    default:
        say(out, "driver", -1, MS_DOCTOR_MISSING, "check the output of nvidia-smi",
            "the driver did not answer: the process that called it crashed or hung");
        return;
    }
    say(out, "driver", -1, MS_DOCTOR_OK, NULL, "CUDA %d.%d", facts->cuda_version / 1000,
        facts->cuda_version % 1000 / 10);
    if (facts->device_count == 0) {
        say(out, "device", -1, MS_DOCTOR_MISSING,
            "check the output of nvidia-smi, and whether CUDA_VISIBLE_DEVICES names a device",
            "the driver reports no device");
    }
}

static void find_mapping(const struct ms_doctor_device *device, struct ms_doctor_findings *out)
{
    char granule[24];
    if (!device->mapping || device->granule_bytes == 0) {
        say(out, "mapping", device->ordinal, MS_DOCTOR_LIMITED,
            "use a physical device instead of a virtual one",
            "no virtual memory management: the pool cannot expand, holes are not repaired and "
            "nothing is spilled; the cap and the report work");
        return;
    }
    say(out, "mapping", device->ordinal, MS_DOCTOR_OK, NULL,
        "virtual memory management in granules of %s; chunks can be exported as %s%s",
        ms_bytes_text(device->granule_bytes, granule, sizeof(granule)),
        device->handle_fd ? "file descriptors" : "nothing",
        device->handle_fabric ? " and fabric handles" : "");
    if (device->rdma == MS_DOCTOR_YES) {
        say(out, "gpudirect", device->ordinal, MS_DOCTOR_OK, NULL,
            "memory from the pool supports GPUDirect RDMA");
    } else {
        say(out, "gpudirect", device->ordinal, MS_DOCTOR_LIMITED, NULL,
            device->rdma_offered
                ? "the driver offers GPUDirect RDMA for mapped memory, but a test of it failed; "
                  "the pool's memory does not support it"
                : "no GPUDirect RDMA for mapped memory: network cards cannot reach the pool's "
                  "memory");
    }
}

static void say_speed(const struct ms_doctor_device *device, struct ms_doctor_findings *out)
{
    char down[24];
    char up[24];
    char where[40] = "on any node";
    if (device->host_node >= 0) {
        (void)snprintf(where, sizeof(where), "on NUMA node %" PRId32, device->host_node);
    }
    if (device->down_bytes_per_s == 0 || device->up_bytes_per_s == 0) {
        say(out, "spill", device->ordinal, MS_DOCTOR_OK, NULL,
            "memory can move to the host and keep its address (%s), as a real access has shown; "
            "its speed could not be measured, because memory is short",
            where);
        return;
    }
    say(out, "spill", device->ordinal, MS_DOCTOR_OK, NULL,
        "memory can move to the host and keep its address (%s), as a real access has shown: "
        "%s/s to the host, %s/s back",
        where, ms_bytes_text(device->down_bytes_per_s, down, sizeof(down)),
        ms_bytes_text(device->up_bytes_per_s, up, sizeof(up)));
}

static void find_spill(const struct ms_doctor_device *device, struct ms_doctor_findings *out)
{
    if (!device->host_offered) {
        say(out, "spill", device->ordinal, MS_DOCTOR_LIMITED,
            "a driver for CUDA 12.2 or later may support it",
            "this driver cannot put host memory at a block's address: what is allocated on the "
            "device stays there");
    } else if (ms_probe_answer_of(device->host_code) == MS_PROBE_YES) {
        say_speed(device, out);
    } else if (ms_probe_answer_of(device->host_code) == MS_PROBE_NO) {
        say(out, "spill", device->ordinal, MS_DOCTOR_LIMITED, "try a newer driver",
            "the driver offers to put host memory at a block's address, but a real access to it "
            "failed (%s): what is allocated on the device stays there",
            ms_probe_why(device->host_code));
    } else {
        say(out, "spill", device->ordinal, MS_DOCTOR_LIMITED,
            "run memshim doctor while the device is free and not in exclusive mode",
            "it could not be tested whether host memory works at a block's address: %s",
            ms_probe_why(device->host_code));
    }
}

/* --- answers of earlier probes ---------------------------------------------------------------- */

static void find_kept(const struct ms_doctor_kept *kept, const char *folder,
                      struct ms_doctor_findings *out)
{
    const bool no = ms_probe_answer_of(kept->code) == MS_PROBE_NO;
    if (kept->trouble) {
        say(out, "remembered", kept->device, MS_DOCTOR_LIMITED, NULL,
            "%s/%s was %s and has been removed: the next process tests the device again", folder,
            kept->name, kept->trouble);
    } else if (kept->removed) {
        say(out, "remembered", kept->device, MS_DOCTOR_OK, NULL,
            "the result remembered on %s (%s) was outdated and has been forgotten: host memory %s",
            kept->since, ms_probe_why(kept->code), no ? "works" : "does not work");
    } else {
        say(out, "remembered", kept->device, MS_DOCTOR_LIMITED,
            "memshim doctor --forget makes the next process test it again",
            "since %s memshim remembers%s that %s; it is tested again after a day", kept->since,
            kept->device < 0 ? ", of another device, driver or version than are here now," : "",
            ms_probe_why(kept->code));
    }
}

static void find_remembered(const struct ms_doctor_remembered *remembered,
                            struct ms_doctor_findings *out)
{
    if (remembered->folder.trouble) {
        say(out, "remembered", -1, MS_DOCTOR_LIMITED,
            "make it accessible to the user only (mode 700), or remove it",
            "%s cannot be used, so every process tests the device again: %s",
            remembered->folder.path, remembered->folder.trouble);
    }
    if (remembered->forget) {
        say(out, "remembered", -1, MS_DOCTOR_OK, NULL, "%u result%s of earlier tests forgotten",
            remembered->forgotten, remembered->forgotten == 1 ? "" : "s");
    }
    for (size_t i = 0; i < remembered->count; i++) {
        find_kept(&remembered->list[i], remembered->folder.path, out);
    }
}

static void find_rungs(const struct ms_doctor_device *device, struct ms_doctor_findings *out)
{
    bool managed = device->managed == MS_DOCTOR_YES;
    bool pinned = device->pinned == MS_DOCTOR_YES;
    say(out, "rungs", device->ordinal, managed || pinned ? MS_DOCTOR_OK : MS_DOCTOR_LIMITED, NULL,
        "a block can be allocated on the host in %s",
        managed && pinned ? "managed memory that prefers the host, or in pinned host memory"
        : managed         ? "managed memory that prefers the host; not in pinned host memory"
        : pinned          ? "pinned host memory; not in managed memory"
                          : "neither managed nor pinned host memory");
}

/* Limits that are not memshim's. */
static void find_limits(const struct ms_doctor_report *report,
                        const struct ms_doctor_device *device, struct ms_doctor_findings *out)
{
    char *const *environment = report->environment;
    const struct ms_driver_limit limits[] = {
        ms_limit_of_group("", device->pci),
        ms_limit_of_mps(ms_environment(environment, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
                        device->ordinal),
        ms_limit_of_torch(environment, device->total_bytes),
    };
    static const char *const names[MS_LIMITED_BY_COUNT] = {
        [MS_LIMITED_BY_CGROUP] = "this control group may use %s of the device (dmem.max)",
        [MS_LIMITED_BY_MPS] = "an MPS client may use %s of the device "
                              "(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT)",
        [MS_LIMITED_BY_TORCH_CONF] = "PyTorch limits itself to %s of the device, less if a cap is "
                                     "set (per_process_memory_fraction)",
    };
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        char bytes[24];
        if (limits[i].bytes != 0 && limits[i].bytes < device->total_bytes) {
            (void)ms_bytes_text(limits[i].bytes, bytes, sizeof(bytes));
            say(out, "limit", device->ordinal, MS_DOCTOR_LIMITED,
                "set MEMSHIM_LIMIT a little lower, so that memshim can move memory in time",
                names[limits[i].by], bytes);
        }
    }
}

static void find_device(const struct ms_doctor_report *report,
                        const struct ms_doctor_device *device, struct ms_doctor_findings *out)
{
    char total[24];
    say(out, "device", device->ordinal, MS_DOCTOR_OK, NULL, "%s, %s, %s",
        device->name[0] != '\0' ? device->name : "no name",
        ms_bytes_text(device->total_bytes, total, sizeof(total)), device->uuid);
    find_limits(report, device, out);
    find_mapping(device, out);
    find_spill(device, out);
    find_rungs(device, out);
}

/* --- the host --------------------------------------------------------------------------------- */

static void find_memory(const struct ms_doctor_report *report, struct ms_doctor_findings *out)
{
    char available[24];
    char limit[24];
    (void)ms_bytes_text(report->host_available_bytes, available, sizeof(available));
    (void)ms_bytes_text(report->spill_limit_bytes, limit, sizeof(limit));
    if (!report->options->spill) {
        say(out, "host memory", -1, MS_DOCTOR_LIMITED, "unset MEMSHIM_SPILL",
            "%s available; nothing is spilled, because MEMSHIM_SPILL=off", available);
    } else if (report->spill_limit_bytes == 0) {
        say(out, "host memory", -1, MS_DOCTOR_LIMITED,
            "give the control group more memory, or set MEMSHIM_SPILL_LIMIT",
            "%s available to this control group, too little to spill into: 2 GiB are always left "
            "free",
            available);
    } else {
        say(out, "host memory", -1, MS_DOCTOR_OK, NULL,
            "%s available to this control group; each process may spill up to %s of it", available,
            limit);
    }
}

static void find_python(const struct ms_doctor_report *report, struct ms_doctor_findings *out)
{
    const struct ms_doctor_python *python = &report->python;
    if (!python->found) {
        say(out, "python", -1, MS_DOCTOR_MISSING, "name the interpreter with --python",
            "%s cannot be run", report->interpreter);
        return;
    }
    say(out, "python", -1, python->readable ? MS_DOCTOR_OK : MS_DOCTOR_LIMITED, NULL,
        "%s %u.%u.%u (%s): its frames %s", python->implementation, python->major, python->minor,
        python->micro, python->path,
        python->readable ? "are read for call sites"
        : python->free_threaded
            ? "cannot be read in a build without the GIL; call sites have native frames only"
            : "have an unknown layout; call sites have native frames only");
}

/* What memshim would do with PyTorch's setting. */
static const char *setting(const struct ms_doctor_report *report)
{
    const char *values[MS_TORCH_CONF_NAMES];
    for (int i = 0; i < MS_TORCH_CONF_NAMES; i++) {
        values[i] = ms_environment(report->environment, ms_torch_conf_names[i]);
    }
    if (!ms_torch_conf_open(report->options->torch, values)) {
        return "its own settings are used";
    }
    if (report->options->torch != MS_TORCH_NATIVE) {
        return "its backend is set to cudaMallocAsync";
    }
    const char *graphs = ms_environment(report->environment, "NCCL_GRAPH_REGISTER");
    return graphs == NULL
               ? "expandable segments are switched on, and NCCL_GRAPH_REGISTER=0 is set for NCCL "
                 "2.24.3 to 2.31.2, whose CUDA graphs hang with them"
           : strcmp(graphs, "0") == 0 ? "expandable segments are switched on"
                                      : "expandable segments are switched on, except with NCCL "
                                        "2.24.3 to 2.31.2, because NCCL_GRAPH_REGISTER is set";
}

static void find_torch(const struct ms_doctor_report *report, struct ms_doctor_findings *out)
{
    const struct ms_doctor_python *python = &report->python;
    const char *mode = ms_torch_mode_name(report->options->torch);
    const char *cuda = python->torch_cuda[0] != '\0' ? python->torch_cuda : "none";
    if (!python->found || python->torch[0] == '\0') {
        say(out, "pytorch", -1, MS_DOCTOR_MISSING,
            "name the interpreter that has PyTorch with --python",
            "%s has no PyTorch; other programs do not need it", report->interpreter);
    } else if (python->torch_cuda[0] == '\0') {
        say(out, "pytorch", -1, MS_DOCTOR_LIMITED, "install a build of PyTorch with CUDA",
            "PyTorch %s, built without CUDA", python->torch);
    } else if (report->options->torch == MS_TORCH_OFF || !report->options->pool) {
        say(out, "pytorch", -1, MS_DOCTOR_LIMITED, NULL,
            "PyTorch %s (CUDA %s); %s: memshim sees its segments, not its tensors", python->torch,
            cuda, report->options->pool ? "MEMSHIM_TORCH=off" : "MEMSHIM_POOL=off");
    } else if (report->options->torch == MS_TORCH_NATIVE && !python->torch_reports) {
        say(out, "pytorch", -1, MS_DOCTOR_LIMITED,
            "with MEMSHIM_TORCH=tensor memshim sees every tensor",
            "PyTorch %s (CUDA %s), mode native: its libc10 does not report its tensors; "
            "memshim sees only segments",
            python->torch, cuda);
    } else {
        say(out, "pytorch", -1, MS_DOCTOR_OK, NULL, "PyTorch %s (CUDA %s), mode %s: %s",
            python->torch, cuda, mode, setting(report));
    }
}

/* Who may open the handles of cuIpcGetMemHandle. */
static void find_sharing(const struct ms_doctor_report *report, struct ms_doctor_findings *out)
{
    const char *forward = report->options->forward;
    if (!report->options->pool) {
        say(out, "sharing", -1, MS_DOCTOR_OK, NULL,
            "every process can open memory that this one exports (MEMSHIM_POOL=off)");
    } else if (forward != NULL) {
        say(out, "sharing", -1, MS_DOCTOR_OK, NULL,
            "every process can open memory that %s allocates; all other memory can only be opened "
            "by processes under memshim",
            forward);
    } else {
        say(out, "sharing", -1, MS_DOCTOR_OK, NULL,
            "processes under memshim can open memory that this one exports (cudaIpcGetMemHandle); "
            "for other processes, set MEMSHIM_FORWARD to the library or line that allocates it, "
            "such as libcomm.so or train.py:42");
    }
}

/* --- functions -------------------------------------------------------------------------------- */

/* How many of the driver's functions have this disposition. */
static int functions_in(const struct ms_doctor_facts *facts, enum ms_hook_disposition disposition)
{
    int count = 0;
    for (int row = 0; row < MS_HOOK_COUNT; row++) {
        count += facts->functions[row] && ms_hook_table[row].disposition == disposition;
    }
    return count;
}

/* The base names of forwarded functions, once each: the versions of one function are neighbours. */
static void list_forwarded(const struct ms_doctor_facts *facts, char *text, size_t text_bytes)
{
    const char *last = "";
    size_t used = 0;
    text[0] = '\0';
    for (int row = 0; row < MS_HOOK_COUNT; row++) {
        const struct ms_hook_info *hook = &ms_hook_table[row];
        size_t length = strlen(hook->base);
        if (facts->functions[row] && hook->disposition == MS_HOOK_FORWARDED &&
            strcmp(hook->base, last) != 0 && used + length + 3 < text_bytes) {
            used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", used > 0 ? ", " : "",
                                     hook->base);
            last = hook->base;
        }
    }
}

static void find_functions(const struct ms_doctor_facts *facts, struct ms_doctor_findings *out)
{
    char names[1280];
    int forwarded = functions_in(facts, MS_HOOK_FORWARDED);
    int watched = functions_in(facts, MS_HOOK_WATCHED) + functions_in(facts, MS_HOOK_LAUNCHED);
    list_forwarded(facts, names, sizeof(names));
    say(out, "functions", -1, MS_DOCTOR_OK, NULL,
        "of this driver's functions memshim serves %d, watches %d and gates %d; it would forward "
        "%d and charge their memory: %s",
        functions_in(facts, MS_HOOK_SERVED), watched, functions_in(facts, MS_HOOK_GATED), forwarded,
        names);
}

/* --- conflicts -------------------------------------------------------------------------------- */

static void find_conflicts(const struct ms_doctor_report *report, struct ms_doctor_findings *out)
{
    struct ms_conflict found[MS_CONFLICTS_MAX];
    const struct ms_doctor_facts *facts = report->facts;
    const struct ms_conflict_signs signs = {
        .environment = report->environment,
        .root = "",
        .device_name = facts->device_count > 0 ? facts->devices[0].name : "",
        .nccl = report->python.nccl,
    };
    const size_t count = ms_doctor_conflicts(&signs, found);
    for (size_t i = 0; i < count; i++) {
        say(out, "conflict", -1, MS_DOCTOR_LIMITED, found[i].advice, "%s (by %s): %s",
            found[i].name, found[i].by, found[i].says);
    }
}

void ms_doctor_find(const struct ms_doctor_report *report, struct ms_doctor_findings *out)
{
    const struct ms_doctor_facts *facts = report->facts;
    out->count = 0;
    find_driver(facts, out);
    for (int i = 0; i < facts->device_count; i++) {
        find_device(report, &facts->devices[i], out);
    }
    find_conflicts(report, out);
    find_remembered(&report->remembered, out);
    find_memory(report, out);
    find_python(report, out);
    find_torch(report, out);
    find_sharing(report, out);
    if (report->libunwind) {
        say(out, "libunwind", -1, MS_DOCTOR_OK, NULL, "found");
    } else {
        say(out, "libunwind", -1, MS_DOCTOR_LIMITED, "install libunwind8 (libunwind.so.8)",
            "not found: native stacks end where memshim's own reading of unwind tables does");
    }
    if (report->libdw) {
        say(out, "libdw", -1, MS_DOCTOR_OK, NULL, "found");
    } else {
        say(out, "libdw", -1, MS_DOCTOR_LIMITED, "install libdw1 (libdw.so.1)",
            "not found: reports made here have no names of native functions");
    }
    if (ms_doctor_serves(facts)) {
        find_functions(facts, out);
    }
}
