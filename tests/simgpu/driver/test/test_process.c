/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes, forks, and settings. */
#include "check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct probe {
    pid_t pid;
    FILE *to, *from;
};

/* Starts the probe with settings "NAME=VALUE", the last one followed by NULL. */
static struct probe start(const char *const *settings, const char *what, const char *argument)
{
    int to[2], from[2];
    cr_assert_eq(pipe(to), 0);
    cr_assert_eq(pipe(from), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        for (; settings && *settings; settings++) {
            putenv((char *)*settings);
        }
        dup2(to[0], 0);
        dup2(from[1], 1);
        dup2(from[1], 2);
        for (int fd = 3; fd < 64; fd++) {
            close(fd);
        }
        execl(PROBE_PATH, PROBE_PATH, what, argument, NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    return (struct probe){pid, fdopen(to[1], "w"), fdopen(from[0], "r")};
}

static int finish(struct probe probe)
{
    int status;
    fclose(probe.to);
    fclose(probe.from);
    waitpid(probe.pid, &status, 0);
    return status;
}

/* All of its output. */
static const char *output_of(const char *const *settings, const char *what, const char *argument)
{
    static char text[4000];
    struct probe probe = start(settings, what, argument);
    size_t length = fread(text, 1, sizeof text - 1, probe.from);
    text[length] = '\0';
    finish(probe);
    return text;
}

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(process, settings_are_obeyed)
{
    cr_assert_str_eq(
        output_of(SETTINGS("SIMGPU_DEVICES=3", "SIMGPU_MEMORY=1.5GiB", "SIMGPU_CONTEXT=10M",
                           "SIMGPU_CAPABILITY=9.0", "SIMGPU_DRIVER_VERSION=12080",
                           "SIMGPU_NO_VMM=1"),
                  "settings", NULL),
        "devices 3 version 12080 memory 1610612736 capability 9.0 vmm 0 host 0 context 10485760\n");
    cr_assert_str_eq(
        output_of(
            SETTINGS("SIMGPU_DEVICES=", "SIMGPU_MEMORY=", "SIMGPU_CONTEXT=", "SIMGPU_HOST_NUMA=0"),
            "settings", NULL),
        "devices 1 version 13020 memory 25769803776 capability 8.9 vmm 1 host 0 context "
        "419430400\n");
}

Test(process, an_old_driver_exports_only_what_it_had)
{
    cr_assert_str_eq(output_of(SETTINGS("SIMGPU_DRIVER_VERSION=12000"), "exports", "12000"),
                     "some are newer\n");
    cr_assert_str_eq(output_of(SETTINGS("SIMGPU_DRIVER_VERSION=11040"), "exports", "11040"),
                     "some are newer\n");
    cr_assert_str_eq(output_of(NULL, "exports", "13020"), "none is newer\n");
}

Test(process, bad_settings_are_reported_and_the_default_is_kept)
{
    const char *text =
        output_of(SETTINGS("SIMGPU_DEVICES=many", "SIMGPU_MEMORY=24GiBs", "SIMGPU_DELAY_US=9-3",
                           "SIMGPU_CONTENTS=some", "SIMGPU_FAIL=cuMemAlloc@0=NOPE",
                           "SIMGPU_CAPABILITY=x", "SIMGPU_STRICT=2", "SIMGPU_DESTROY_US=-1",
                           "SIMGPU_QUEUE=few", "SIMGPU_FIRST_LAUNCH=1X", "SIMGPU_PEER_US=1.5"),
                  "settings", NULL);
    for (const char *const *name =
             SETTINGS("SIMGPU_DEVICES=many", "SIMGPU_MEMORY=24GiBs", "SIMGPU_DELAY_US=9-3",
                      "SIMGPU_CONTENTS=some", "SIMGPU_FAIL=cuMemAlloc@0=NOPE",
                      "SIMGPU_CAPABILITY=x", "SIMGPU_STRICT=2", "SIMGPU_DESTROY_US=-1",
                      "SIMGPU_QUEUE=few", "SIMGPU_FIRST_LAUNCH=1X", "SIMGPU_PEER_US=1.5");
         *name; name++) {
        cr_assert_not_null(strstr(text, *name), "%s is not named in: %s", *name, text);
    }
    cr_assert_not_null(strstr(text, "devices 1 version 13020 memory 25769803776 capability 8.9"),
                       "%s", text);
}

Test(process, failures_come_from_the_environment)
{
    cr_assert_str_eq(
        output_of(SETTINGS("SIMGPU_FAIL=cuMemAlloc@2=CUDA_ERROR_OUT_OF_MEMORY,cuMemAlloc_v2@3=999"),
                  "fail", NULL),
        "0 2 999 \n");
    cr_assert_str_eq(output_of(SETTINGS("SIMGPU_FAIL=cuMemAlloc@1=2,any@+1-2=700"), "fail", NULL),
                     "2 700 700 \n");
}

Test(process, rules_that_make_no_sense_are_named)
{
    for (const char *const *rule = SETTINGS(
             "SIMGPU_FAIL=cuMemAlloc@3-2=2", "SIMGPU_FAIL=cuMemAlloc@+0=2", "SIMGPU_FAIL=any@+1=2",
             "SIMGPU_FAIL=cuMemAlloc@1-=2", "SIMGPU_FAIL=nothing@1=2");
         *rule; rule++) {
        const char *text = output_of(SETTINGS(*rule), "fail", NULL);
        cr_assert_not_null(strstr(text, *rule), "%s is not named in: %s", *rule, text);
        cr_assert_not_null(strstr(text, "0 0 0 \n"), "%s", text);
    }
}

Test(process, the_use_of_a_destroyed_handle_names_both_call_sites)
{
    const char *text = output_of(NULL, "stale", NULL);
    cr_assert_not_null(strstr(text, "cuStreamQuery uses a destroyed handle"), "%s", text);
    cr_assert_not_null(strstr(text, "destroyed by cuStreamDestroy"), "%s", text);
    const char *used = strstr(text, "simgpu: used by"),
               *gone = strstr(text, "simgpu: destroyed by");
    cr_assert(used && gone && used < gone, "%s", text);
    cr_assert_not_null(strstr(used, "use_stream"), "%s", text);
    cr_assert_lt(strstr(used, "use_stream"), gone, "%s", text);
    cr_assert_not_null(strstr(gone, "destroy_stream"), "%s", text);
}

Test(process, others_may_use_a_handle_while_it_is_destroyed)
{
    const char *text = output_of(SETTINGS("SIMGPU_DESTROY_US=5000000"), "stale-meanwhile", NULL);
    cr_assert_not_null(strstr(text, "cuStreamQuery uses a destroyed handle"), "%s", text);
    cr_assert_null(strstr(text, "destroyed\n"), "the destruction had ended: %s", text);
}

Test(process, destroyed_handles_are_refused_where_they_may_be_used)
{
    cr_assert_str_eq(output_of(SETTINGS("SIMGPU_STRICT=0"), "twice", NULL),
                     "0 0 0 0 400 400 400 1 \n");
}

static const char *shared_file(void)
{
    static char setting[64];
    char path[] = "/tmp/simgpu-shared-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    snprintf(setting, sizeof setting, "SIMGPU_SHARED=%s", path);
    return setting;
}

Test(process, another_process_takes_and_gives_back_at_set_moments)
{
    const char *of_its_own = shared_file();
    for (const char *const *shared = SETTINGS("SIMGPU_SHARED=", of_its_own); *shared; shared++) {
        cr_assert_str_eq(
            output_of(
                SETTINGS(
                    "SIMGPU_MEMORY=1GiB", "SIMGPU_CONTEXT=0", *shared,
                    "SIMGPU_OTHER=cuMemGetInfo@2=64MiB,cuMemGetInfo@3=8MiB,cuMemGetInfo@4=2GiB"),
                "watch", NULL),
            "1024 960 1016 0 here 0\n");
    }
    unlink(strchr(of_its_own, '=') + 1);
    const char *text = output_of(SETTINGS("SIMGPU_OTHER=cuMemAlloc@0=1MiB"), "fail", NULL);
    cr_assert_not_null(strstr(text, "SIMGPU_OTHER=cuMemAlloc@0=1MiB is not"), "%s", text);
}

Test(process, contents_off_cost_the_host_nothing)
{
    cr_assert_str_eq(
        output_of(SETTINGS("SIMGPU_MEMORY=48GiB", "SIMGPU_CONTENTS=none"), "large", NULL),
        "host 0 byte 5\n");
}

Test(process, a_forked_child_has_no_driver)
{
    cr_assert_str_eq(output_of(SETTINGS("SIMGPU_CONTEXT=64MiB"), "fork", "1"),
                     "child 3 3\nparent used 67108864\n");
    cr_assert_str_eq(output_of(SETTINGS("SIMGPU_DEVICES=1"), "fork", "0"),
                     "child 0 0\nparent used 0\n");
}

static void expect(struct probe probe, int status, unsigned long long free_mib)
{
    char line[200] = "", wanted[200];
    cr_assert_not_null(fgets(line, sizeof line, probe.from));
    snprintf(wanted, sizeof wanted, "status %d free %llu\n", status, free_mib * MIB);
    cr_assert_str_eq(line, wanted);
}

Test(process, processes_share_a_device)
{
    const char *const *settings =
        SETTINGS(shared_file(), "SIMGPU_MEMORY=1GiB", "SIMGPU_CONTEXT=64MiB", "SIMGPU_DEVICES=1");
    struct probe first = start(settings, "take", "524288000");
    expect(first, 0, 1024 - 64 - 500);
    struct probe second = start(settings, "take", "524288000");
    expect(second, CUDA_ERROR_OUT_OF_MEMORY, 1024 - 128 - 500);
    struct probe third = start(settings, "take-and-die", "104857600");
    expect(third, 0, 1024 - 192 - 600);
    fputc('\n', first.to);
    finish(first);
    struct probe fourth = start(settings, "take", "524288000");
    expect(fourth, 0, 1024 - 192 - 600);
    fputc('\n', third.to);
    finish(third); /* it exited without output */
    kill(second.pid, SIGKILL);
    finish(second);
    struct probe fifth = start(settings, "take", "1048576");
    expect(fifth, 0, 1024 - 128 - 502);
    finish(fourth);
    finish(fifth);
    unlink(strchr(settings[0], '=') + 1);
}

Test(process, memory_and_events_of_another_process)
{
    begin();
    CUdeviceptr block;
    CUevent event;
    CUstream stream;
    CUipcMemHandle memory;
    CUipcEventHandle event_handle;
    char line[100];
    OK(cuMemAlloc(&block, 4096));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    REFUSED(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcGetMemHandle(&memory, block));
    OK(cuIpcGetEventHandle(&event_handle, event));
    REFUSED(cuIpcOpenMemHandle(&block, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_INVALID_CONTEXT);
    volatile uint32_t *gate = shut_gate(stream);
    fill(stream, block, 4096, 33);
    OK(cuEventRecord(event, stream));
    struct probe probe = start(NULL, "open", NULL);
    fwrite(&memory, 1, sizeof memory, probe.to);
    fwrite(&event_handle, 1, sizeof event_handle, probe.to);
    fflush(probe.to);
    cr_assert_not_null(fgets(line, sizeof line, probe.from));
    cr_assert_str_eq(line, "same 1 query 600\n");
    open_gate(gate);
    cr_assert_not_null(fgets(line, sizeof line, probe.from));
    cr_assert_str_eq(line, "wrong 0\n");
    cr_assert_eq(finish(probe), 0);
    cr_assert_eq(mismatches(stream, block, 4096, 44), 0);
}

Test(process, a_pool_of_another_process)
{
    begin();
    struct {
        CUmemPoolPtrExportData block;
        int fd;
    } given = {.fd = -1};
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemoryPool pool;
    CUdeviceptr block;
    CUstream stream;
    char line[100];
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemAllocFromPoolAsync(&block, 4096, pool, stream));
    fill(stream, block, 4096, 33);
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolExportToShareableHandle(&given.fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                        0));
    OK(cuMemPoolExportPointer(&given.block, block));
    struct probe probe = start(NULL, "pool", NULL);
    fwrite(&given, 1, sizeof given, probe.to);
    fflush(probe.to);
    cr_assert_not_null(fgets(line, sizeof line, probe.from));
    cr_assert_str_eq(line, "alloc 1 wrong 0 pools 0\n");
    cr_assert_eq(finish(probe), 0);
    cr_assert_eq(mismatches(stream, block, 4096, 44), 0);
}
