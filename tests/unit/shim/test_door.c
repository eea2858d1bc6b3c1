/* SPDX-License-Identifier: Apache-2.0 */
/* The roads through the door, seen from programs that go along them: probe.c with and without the
 * preload, on a fake driver. */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_BYTES ((size_t)256 * 1024)

struct result {
    int status;
    char *text; /* stdout and stderr; never freed, the test's process ends */
};

static const char *env(const char *name)
{
    const char *value = getenv(name);
    cr_assert_not_null(value, "%s is set by ctest", name);
    return value;
}

/* Runs a shell command line, in a folder of its own, with these libraries preloaded. */
static struct result run(const char *preload, const char *command)
{
    struct result result = {.text = calloc(1, TEXT_BYTES)};
    char line[4096];
    cr_assert_not_null(result.text);
    snprintf(line, sizeof(line), "cd \"$FOLDER\" && LD_PRELOAD='%s' %s 2>&1", preload, command);
    FILE *pipe = popen(line, "r");
    cr_assert_not_null(pipe);
    size_t used = 0, got = 1;
    while (got > 0 && used < TEXT_BYTES - 1) {
        got = fread(result.text + used, 1, TEXT_BYTES - 1 - used, pipe);
        used += got;
    }
    int status = pclose(pipe);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
}

static struct result probe(const char *preload, const char *road)
{
    char command[1024];
    snprintf(command, sizeof(command), "%s %s", env("PROBE"), road);
    return run(preload, command);
}

static char folder[] = "/tmp/memshim-door-XXXXXX";

static void make_folder(void)
{
    cr_assert_not_null(mkdtemp(folder));
    setenv("FOLDER", folder, 1);
    unsetenv("MEMSHIM_RUN_ID");
}

static bool folder_is_empty(void)
{
    return rmdir(folder) == 0;
}

static void drop_folder(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(door, .init = make_folder, .fini = drop_folder);

/* Puts the driver's name for the door's, where the door stands in front of the same function. */
static const char *as_without(const char *text)
{
    static const char ours[] = " libdoor.so:", theirs[] = " libcuda.so.1:";
    static char out[2 * TEXT_BYTES];
    size_t used = 0;
    while (*text != '\0') {
        if (strncmp(text, ours, sizeof(ours) - 1) == 0) {
            memcpy(out + used, theirs, sizeof(theirs));
            used += sizeof(theirs) - 1;
            text += sizeof(ours) - 1;
        } else {
            out[used++] = *text++;
        }
    }
    out[used] = '\0';
    return out;
}

/* Everything that the program sees is what it would see alone: which names exist, under which
 * versions and flags, with which status and which dlerror. And what exists of ours is a hook. */
static void check_road(const char *road, int hooks_expected)
{
    struct result without = probe("", road);
    struct result with = probe(env("DOOR"), road);
    int hooks = 0;
    cr_assert_eq(without.status, 0, "%s", without.text);
    cr_assert_eq(with.status, 0, "%s", with.text);
    for (const char *at = with.text; (at = strstr(at, " libdoor.so:")) != NULL; at++) {
        hooks++;
    }
    cr_assert_eq(hooks, hooks_expected, "%s: %d hooks\n%s", road, hooks, with.text);
    cr_assert_str_eq(as_without(with.text), without.text);
    cr_assert(folder_is_empty(), "no file is left");
}

Test(door, handle)
{
    check_road("handle", 4);
}

Test(door, rtld_default)
{
    check_road("default", 4);
}

Test(door, rtld_next)
{
    check_road("next", 4);
}

Test(door, own_handle)
{
    check_road("main", 4);
}

Test(door, dlvsym)
{
    check_road("version", 0);
}

Test(door, resolver_versions_and_flags)
{
    /* For each of three sets of flags: 7 of cuMemAlloc, 3 of cuMemAllocAsync, 5 of cuCtxCreate, 2
     * of cuGetProcAddress. */
    check_road("resolver", 3 * 17);
}

Test(door, names_that_share_a_function)
{
    cr_assert_str_eq(probe(env("DOOR"), "shared").text,
                     "cuMemFreeAsync libdoor.so:cuMemFreeAsync\n"
                     "cuMemFreeAsync_ptsz libdoor.so:cuMemFreeAsync_ptsz\n"
                     "cuMemFreeAsync libdoor.so:cuMemFreeAsync\n"
                     "cuMemFreeAsync libdoor.so:cuMemFreeAsync\n"
                     "cuMemFreeAsync libdoor.so:cuMemFreeAsync_ptsz\n");
}

/* The one place where more is found than without: whether the caller's own scope has the driver
 * cannot be asked. What the driver lacks is not found there either, and dlerror agrees. */
Test(door, driver_in_a_local_scope)
{
    struct result with = probe(env("DOOR"), "local");
    cr_assert_null(strstr(with.text, "dlerror"), "%s", with.text);
    cr_assert(strstr(with.text, "cuMemAlloc_v2 libdoor.so:cuMemAlloc_v2\n") != NULL, "%s",
              with.text);
    cr_assert(strstr(with.text, "cuCtxCreate_v4 -\n") != NULL, "%s", with.text);
    cr_assert(strstr(with.text, "cuEventQuery -\n") != NULL, "%s", with.text);
}

Test(door, dlmopen_is_left_alone)
{
    check_road("namespace", 0);
}

Test(door, programs_that_never_touch_cuda)
{
    static const char *const commands[] = {
        "ls -la /usr/lib/os-release",
        "bash -c 'echo $((6*7)); (exit 3); echo $?; f() { ls /; }; f'",
        "python3 -c 'import os, subprocess; print(subprocess.check_output([\"ls\", \"/\"]))'",
        "sh -c 'ls /no/such/file; exit 4'", "echo nothing"};
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct result without = run("", commands[i]), with = run(env("DOOR"), commands[i]);
        cr_assert_eq(with.status, without.status, "%s", commands[i]);
        cr_assert_str_eq(with.text, without.text, "%s", commands[i]);
    }
    cr_assert(folder_is_empty());
}

Test(door, calls_reach_the_function_that_was_asked_for)
{
    struct result with = probe(env("DOOR"), "call");
    cr_assert_str_eq(with.text, "called cuMemAlloc_v2\ncalled cuMemAlloc\n"
                                "called cuMemAllocAsync_ptsz\nserved 3\n");
}

Test(door, fork_children_are_silent)
{
    setenv("FAKE_DEVICE", "1", 1);
    struct result with = probe(env("DOOR"), "fork");
    cr_assert(strstr(with.text, "from vfork\nfrom fork\n") != NULL, "%s", with.text);
    cr_assert(strstr(with.text, "child 0\n") != NULL, "a child's call is not served: %s",
              with.text);
    cr_assert(strstr(with.text, "parent 1\n") != NULL, "the parent's still is: %s", with.text);
    const char *first = strstr(with.text, "memshim: version");
    cr_assert_not_null(first, "%s", with.text);
    cr_assert_null(strstr(first + 1, "memshim: version"), "one process speaks: %s", with.text);
    cr_assert_eq(run("", "sh -c 'test $(ls -d memshim-out/2*/* | wc -l) = 1'").status, 0);
}

Test(door, children_from_before_the_driver_speak)
{
    setenv("FAKE_DEVICE", "1", 1);
    struct result with = probe(env("DOOR"), "fork-first");
    cr_assert(strstr(with.text, "memshim: version") != NULL, "%s", with.text);
}

Test(door, exit_with_threads_inside)
{
    setenv("FAKE_DEVICE", "1", 1);
    struct result with = probe(env("DOOR"), "threads");
    cr_assert_eq(with.status, 5, "%s", with.text);
    cr_assert(strstr(with.text, "no report was written (the memshim command is not beside") != NULL,
              "%s", with.text);
}

Test(door, one_run_id_for_a_tree)
{
    struct result one =
        run(env("DOOR"), "sh -c 'echo $MEMSHIM_RUN_ID; sh -c \"echo \\$MEMSHIM_RUN_ID\"'");
    char *second = strchr(one.text, '\n') + 1;
    cr_assert_gt(strlen(second), 18u, "%s", one.text);
    cr_assert(strncmp(one.text, second, strlen(second)) == 0, "%s", one.text);
    setenv("MEMSHIM_RUN_ID", "mine", 1);
    cr_assert_str_eq(run(env("DOOR"), "sh -c 'echo $MEMSHIM_RUN_ID'").text, "mine\n");
}

Test(door, bad_options_are_said_once_and_when_a_device_is_used)
{
    setenv("MEMSHIM_FRACTION", "2", 1);
    cr_assert_str_eq(run(env("DOOR"), "echo quiet").text, "quiet\n");
    setenv("FAKE_DEVICE", "1", 1);
    struct result with = probe(env("DOOR"), "call");
    const char *said = strstr(with.text, "memshim: MEMSHIM_FRACTION=2 is not usable");
    cr_assert_not_null(said, "%s", with.text);
    cr_assert_null(strstr(said + 20, "MEMSHIM_FRACTION=2"), "%s", with.text);
    setenv("MEMSHIM_LOG", "off", 1);
    cr_assert_null(strstr(probe(env("DOOR"), "call").text, "memshim:"));
}

Test(door, another_interposer_behind)
{
    char both[2048];
    snprintf(both, sizeof(both), "%s:%s", env("DOOR"), env("OTHER"));
    struct result with = probe(both, "interposer");
    cr_assert_str_eq(with.text, "result 0\nserved 1\nother dlsym used 1\nown next 1000\n"
                                "next is its own 0\n");
}

Test(door, reports_of_pytorch)
{
    struct result without = probe("", "torch"), with = probe(env("DOOR"), "torch");
    cr_assert_str_eq(without.text, "real 31\nin its own scope 1, in ours 0\n");
    cr_assert_str_eq(with.text, "real 31\nin its own scope 1, in ours 0\nserved 3\n",
                     "three of them are of a CUDA device");
}

#define VERBS(pinned)                                                 \
    "registered 111 pinned " pinned "\nregistered 112 pinned " pinned \
    "\nregistered 243 pinned " pinned "\nold 104 pinned 0\n"          \
    "missing 1 1\nmissing 1 1\nother 70\n"

/* What a network card is told of is pinned before; and the version asked for is the one called. */
Test(door, registrations_with_a_network_card)
{
    cr_assert_str_eq(probe("", "verbs").text, VERBS("0") VERBS("0"));
    cr_assert_str_eq(probe(env("DOOR"), "verbs").text, VERBS("0") VERBS("0x50000"));
}

static void check_settings(const char *variables, const char *first, const char *second)
{
    char command[1024], expected[1024];
    snprintf(command, sizeof(command), "env HOME=/ MEMSHIM_LOG=off %s %s settings", variables,
             env("PROBE"));
    snprintf(expected, sizeof(expected),
             "PYTORCH_CUDA_ALLOC_CONF: own %s\nPYTORCH_ALLOC_CONF: own %s\n"
             "HOME: own /, theirs /\n",
             first, second);
    cr_assert_str_eq(run(env("DOOR"), command).text, expected, "%s", variables);
}

Test(door, pytorch_alone_reads_what_is_added)
{
    static const char both[] = "none, theirs expandable_segments:True";
    check_settings("", both, both);
    check_settings("MEMSHIM_TORCH=off", "none, theirs none", "none, theirs none");
    check_settings("MEMSHIM_FRAMEWORKS=jax", "none, theirs none", "none, theirs none");
    check_settings("MEMSHIM_POOL=off", "none, theirs none", "none, theirs none");
    check_settings("MEMSHIM_TORCH=tensor", "none, theirs backend:cudaMallocAsync",
                   "none, theirs backend:cudaMallocAsync");
    check_settings("PYTORCH_ALLOC_CONF=a:1", "none, theirs none",
                   "a:1, theirs a:1,expandable_segments:True");
    check_settings("PYTORCH_CUDA_ALLOC_CONF=", ", theirs expandable_segments:True",
                   "none, theirs none");
    check_settings("PYTORCH_ALLOC_CONF=expandable_segments:False", "none, theirs none",
                   "expandable_segments:False, theirs expandable_segments:False");
    check_settings("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK=true", "none, theirs none",
                   "none, theirs none");
}

/* What PyTorch has been told, first by the program, when a pool is made without an allocator and
 * two with one. */
static void check_pool(const char *variables, const char *preload, const char *plain,
                       const char *own)
{
    char command[1024], expected[512];
    snprintf(command, sizeof(command), "env MEMSHIM_LOG=off %s %s pool", variables, env("PROBE"));
    snprintf(expected, sizeof(expected), "%s: (nil) 101\n%s: 0x2000 101\n%s: 0x3000 101\n", plain,
             own, own);
    cr_assert_str_eq(run(preload, command).text, expected, "%s", variables);
}

/* Before 2.10, PyTorch does not support such a pool with expandable segments; 2.7 supports none. */
Test(door, a_pool_with_an_allocator_switches_off_what_memshim_switched_on)
{
#define ON  "expandable_segments:True"
#define OFF "expandable_segments:False"
    check_pool("", "", "nothing", "nothing");
    check_pool("", env("DOOR"), "nothing", ON "," OFF);
    check_pool("PYTORCH_CUDA_ALLOC_CONF=a:1", env("DOOR"), "nothing", "a:1," ON "," OFF);
    check_pool("PYTORCH_CUDA_ALLOC_CONF=" ON, env("DOOR"), "nothing", "nothing");
    check_pool("MEMSHIM_TORCH=off", env("DOOR"), "nothing", "nothing");
    /* What the program sets while it runs comes in place of all that was set before. */
    check_pool("PYTORCH_CUDA_ALLOC_CONF=a:1 FAKE_SETTINGS=b:2", env("DOOR"), "b:2", "b:2," OFF);
    check_pool("FAKE_SETTINGS=" ON, env("DOOR"), ON, ON);
    cr_assert_str_eq(probe(env("DOOR"), "old-pool").text, ON "," OFF ": (nil) 1\n");
}

/* `client`: the first line, the options of the client, and what follows. */
static void check_plugin(const char *variables, const char *client)
{
    char command[1024], text[512];
    snprintf(command, sizeof(command), "env %s %s plugin", variables, env("PROBE"));
    snprintf(text, sizeof(text), "%s\nmade 1\nwhole 1, same 1, options 1\nother 1 1\n", client);
    struct result result = run(env("DOOR"), command);
    cr_assert_eq(result.status, 0, "%s", result.text);
    cr_assert_str_eq(result.text, text, "%s: %s", variables, result.text);
}

Test(door, xlas_plugin_asks_the_driver_unless_the_user_chose)
{
    static const char theirs[] = "platform_name=cuda allocator=default use_tfrt_gpu_client=1 ";
    check_plugin("A=1", "platform_name=cuda allocator=cuda_async use_tfrt_gpu_client=1 "
                        "preallocate=0 ");
    check_plugin("XLA_PYTHON_CLIENT_ALLOCATOR=default", theirs);
    check_plugin("XLA_PYTHON_CLIENT_ALLOCATOR=vmm",
                 "platform_name=cuda allocator=vmm use_tfrt_gpu_client=1 ");
    check_plugin("MEMSHIM_POOL=off", theirs);
    check_plugin("MEMSHIM=off", theirs);
    check_plugin("MEMSHIM_FRAMEWORKS=off", theirs);
    check_plugin("MEMSHIM_FRAMEWORKS=torch,tensorflow", theirs);
    check_plugin("MEMSHIM_FRAMEWORKS=jax", "platform_name=cuda allocator=cuda_async "
                                           "use_tfrt_gpu_client=1 preallocate=0 ");
    check_plugin("FAKE_MAJOR=1", theirs); /* an interface that we know nothing of */
    check_plugin("FAKE_LIMIT=1", "platform_name=cuda allocator=default use_tfrt_gpu_client=1 "
                                 "memory_fraction=-1 ");
}

/* What it says of JAX's allocator. */
static void check_plugins_note(const char *variables, const char *words)
{
    char command[1024];
    snprintf(command, sizeof(command), "env MEMSHIM_LOG=info %s %s plugin 2>&1", variables,
             env("PROBE"));
    struct result result = run(env("DOOR"), command);
    cr_assert(strstr(result.text, words), "%s: %s", variables, result.text);
}

Test(door, what_was_chosen_of_xlas_allocator_is_said)
{
    check_plugins_note("A=1", "cuda_async was chosen by memshim, without preallocation");
    check_plugins_note("FAKE_AHEAD=1", "cuda_async was chosen by memshim, with preallocation");
    check_plugins_note("FAKE_LIMIT=1", "left JAX's allocator as it is");
}

Test(door, where_xlas_plugin_refuses_the_choice_it_is_made_as_the_program_said)
{
    check_plugin("FAKE_WITHOUT_POOLS=1", "platform_name=cuda allocator=cuda_async "
                                         "use_tfrt_gpu_client=1 preallocate=0 \n"
                                         "error destroyed 1\n"
                                         "platform_name=cuda allocator=default "
                                         "use_tfrt_gpu_client=1 ");
}

static void check_tensorflow(const char *variables, const char *own, const char *theirs)
{
    char command[1024], text[128];
    snprintf(command, sizeof(command), "env HOME=/ %s %s tensorflow", variables, env("PROBE"));
    snprintf(text, sizeof(text), "own %s, theirs %s, home /\n", own, theirs);
    struct result result = run(env("DOOR"), command);
    cr_assert_eq(result.status, 0, "%s", result.text);
    cr_assert_str_eq(result.text, text, "%s: %s", variables, result.text);
}

Test(door, tensorflow_alone_reads_that_it_is_to_ask_the_driver)
{
    check_tensorflow("", "none", "cuda_malloc_async");
    check_tensorflow("TF_GPU_ALLOCATOR=bfc", "bfc", "bfc");
    check_tensorflow("TF_GPU_ALLOCATOR=", "", "");
    check_tensorflow("MEMSHIM_FRAMEWORKS=jax", "none", "none");
    check_tensorflow("MEMSHIM_POOL=off", "none", "none");
}

Test(door, a_resolver_of_its_own_is_noticed)
{
    struct result with = probe(env("DOOR"), "bypass");
    cr_assert(strstr(with.text, "in a way that bypasses memshim") != NULL, "%s", with.text);
    cr_assert_str_eq(probe(env("DOOR"), "nothing").text, "");
}
