/* SPDX-License-Identifier: Apache-2.0 */
/* Native stacks while libraries, threads and processes come and go. Each test is a process of its
 * own. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native_walks.h"

/* --- Libraries that come and go --------------------------------------------------------------- */

struct plug {
    void *library;
    uint64_t (*call)(void (*)(void));
    void **returns_to;
};

static struct plug open_plug(const char *variable)
{
    struct plug plug = {dlopen(getenv(variable), RTLD_NOW | RTLD_LOCAL), NULL, NULL};
    cr_assert(plug.library != NULL, "%s: %s", variable, dlerror());
    *(void **)&plug.call = dlsym(plug.library, "plug");
    plug.returns_to = dlsym(plug.library, "plug_returns_to");
    return plug;
}

/* Not by libunwind, whose cache may be behind. */
static void check_plug(const struct plug *plug)
{
    for (int i = 0; i < 3; i++) {
        (void)plug->call(look);
        cr_assert(!last.lost);
        cr_assert_gt(last.count, 3);
        cr_assert(kept_addresses[1] - (uint64_t)plug->call < 256);
        cr_assert_eq(kept_addresses[2], (uint64_t)*plug->returns_to);
    }
}

Test(native_libraries, forgets_a_library_that_went)
{
    struct ms_native_module first, second;
    char path[4096];
    int same_place = 0;
    begin();
    for (int i = 0; i < 20; i++) {
        struct plug plug = open_plug("PLUG_A");
        uint64_t code = (uint64_t)plug.call;
        check_plug(&plug);
        uint64_t generation = last.generation;
        cr_assert(ms_native_module(code, &first, path, sizeof(path)));
        cr_assert_str_eq(path, getenv("PLUG_A"));
        cr_assert(dlclose(plug.library) == 0);
        plug = open_plug("PLUG_B");
        check_plug(&plug);
        cr_assert_gt(last.generation, generation);
        cr_assert(ms_native_module((uint64_t)plug.call, &second, path, sizeof(path)));
        cr_assert_str_eq(path, getenv("PLUG_B"));
        cr_assert_neq(second.generation, first.generation);
        same_place += (uint64_t)plug.call == code;
        cr_assert(dlclose(plug.library) == 0);
    }
    cr_assert(same_place > 0, "the loader never put the one where the other was");
}

#if defined(__x86_64__)
Test(native_libraries, what_was_noted_of_a_stack_goes_with_a_library)
{
    enum { UNLOADED_AT = 5 };
    begin();
    for (volatile uint32_t i = 0; i < 10; i++) {
        if (i == UNLOADED_AT) {
            struct plug plug = open_plug("PLUG_A");
            check_plug(&plug);
            cr_assert(dlclose(plug.library) == 0);
        }
        struct ms_native_note *note = note_of_last();
        cr_assert(i != UNLOADED_AT - 1 || (note != NULL && note->node == 7));
        cr_assert(i != UNLOADED_AT || note == NULL || note->node == 0);
        if (note != NULL) {
            note->node = 7;
        }
    }
}
#endif

Test(native_libraries, keeps_what_it_knows_where_nothing_went)
{
    begin();
    look();
    uint64_t generation = last.generation;
    for (int i = 0; i < 10; i++) {
        void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
        cr_assert(libc != NULL && dlclose(libc) == 0);
    }
    look();
    cr_assert_eq(last.generation, generation);
}

static volatile bool stop;

static void *open_and_close(void *unused)
{
    while (!stop) {
        struct plug plug = open_plug("PLUG_A");
        (void)dlclose(plug.library);
        plug = open_plug("PLUG_B");
        (void)dlclose(plug.library);
    }
    return unused;
}

Test(native_libraries, is_right_while_libraries_come_and_go)
{
    pthread_t thread;
    begin();
    cr_assert(pthread_create(&thread, NULL, open_and_close, NULL) == 0);
    wander_for(17, 5000);
    stop = true;
    pthread_join(thread, NULL);
}

Test(native_libraries, knows_modules)
{
    struct ms_native_module module;
    char path[4096], real[4096], command[4200], line[256], text[2 * MS_BUILD_ID_BYTES + 1] = "";
    Dl_info info;
    begin();
    cr_assert(dladdr((void *)printf, &info) != 0);
    cr_assert(ms_native_module((uint64_t)printf, &module, path, sizeof(path)));
    cr_assert_eq(module.base, (uint64_t)info.dli_fbase);
    cr_assert(path[0] == '/' && strstr(path, "libc.so") != NULL);
    cr_assert((uint64_t)printf - module.base < module.bytes);
    cr_assert(ms_native_module((uint64_t)begin, &module, path, sizeof(path)));
    cr_assert(realpath("/proc/self/exe", real) != NULL);
    cr_assert_str_eq(path, real);
    for (uint32_t i = 0; i < module.build_id_bytes; i++) {
        (void)snprintf(text + (size_t)2 * i, 3, "%02x", module.build_id[i]);
    }
    (void)snprintf(command, sizeof(command), "readelf -n '%s' | grep 'Build ID'", real);
    FILE *notes = popen(command, "r");
    cr_assert(notes != NULL && fgets(line, sizeof(line), notes) != NULL);
    (void)pclose(notes);
    cr_assert(module.build_id_bytes >= 8);
    cr_assert(strstr(line, text) != NULL, "%s is not in %s", text, line);
    cr_assert(!ms_native_module(16, &module, path, sizeof(path)));
}

/* --- Life ------------------------------------------------------------------------------------- */

static void *capture_once(void *unused)
{
    ms_native_capture(DEPTH, &last);
    return unused;
}

static long mapped_pages(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert(file != NULL && fscanf(file, "%ld", &pages) == 1);
    (void)fclose(file);
    return pages;
}

Test(native_libraries, threads_that_ended_leave_nothing)
{
    pthread_t thread;
    long before = 0;
    begin();
    for (int i = 0; i < 1020; i++) {
        before = i == 20 ? mapped_pages() : before;
        cr_assert(pthread_create(&thread, NULL, capture_once, NULL) == 0);
        pthread_join(thread, NULL);
    }
    cr_assert_lt(mapped_pages() - before, 256, "1000 threads mapped a mebibyte");
}

Test(native_libraries, a_fork_child_is_not_harmed)
{
    begin();
    look();
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        look();
        _exit(last.lost ? 1 : 0);
    }
    int status = -1;
    cr_assert(waitpid(child, &status, 0) == child);
    cr_assert_eq(status, 0);
}

Test(native_libraries, leaves_errno_and_the_global_scope)
{
    begin();
    errno = 77;
    look();
    cr_assert_eq(errno, 77);
    cr_assert(dlsym(RTLD_DEFAULT, "unw_backtrace") == NULL);
}
