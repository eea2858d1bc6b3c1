/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the memshim command, and makes its environment. */
#include "shim/process/command.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/base/containers/pages.h"
#include "shim/process/probe.h"
#include "shim/process/process.h"

/* The loader has the library's name as LD_PRELOAD gave it, which is relative to the folder in which
 * the program started. */
static bool find_library(struct ms_command *command)
{
    Dl_info info;
    if (!dladdr((const void *)find_library, &info) || !info.dli_fname) {
        return false;
    }
    const char *folder = info.dli_fname[0] == '/' ? "" : ms_process_start_dir();
    (void)snprintf(command->path, sizeof command->path, "%s%s%s", folder,
                   folder[0] != '\0' ? "/" : "", info.dli_fname);
    return realpath(command->path, command->library) != NULL;
}

bool ms_command_find(struct ms_command *command)
{
    struct stat about;
    static const char *const places[] = {"memshim", "../bin/memshim", "../../bin/memshim"};
    if (!find_library(command)) {
        return false;
    }
    const char *slash = strrchr(command->library, '/');
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        (void)snprintf(command->path, sizeof command->path, "%.*s/%s",
                       (int)(slash - command->library), command->library, places[i]);
        /* Beside an installed library there is a folder of that name. */
        if (access(command->path, X_OK) == 0 && stat(command->path, &about) == 0 &&
            S_ISREG(about.st_mode)) {
            return true;
        }
    }
    return false;
}

/* Whether this entry of LD_PRELOAD is the library, under whatever name. */
static bool is_library(const char *entry, size_t length, struct ms_command *command)
{
    const char *name = entry + length;
    while (name > entry && name[-1] != '/') {
        name--;
    }
    (void)snprintf(command->entry, sizeof command->entry, "%.*s", (int)length, entry);
    return strncmp(name, "libmemshim.so", strlen("libmemshim.so")) == 0 ||
           (realpath(command->entry, command->target) &&
            strcmp(command->target, command->library) == 0);
}

/* LD_PRELOAD= without the library, but with all other entries. */
static void preload_without(const char *value, struct ms_command *command)
{
    char *out = command->preload;
    const size_t out_bytes = sizeof command->preload;
    int used = snprintf(out, out_bytes, "LD_PRELOAD=");
    while (*value != '\0') {
        value += strspn(value, " :");
        size_t length = strcspn(value, " :");
        bool ours = is_library(value, length, command);
        if (!ours && length != 0 && (size_t)used + length + 2 < out_bytes) {
            used += snprintf(out + used, out_bytes - (size_t)used, "%.*s:", (int)length, value);
        }
        value += length;
    }
}

static bool sets(const char *variable, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

static bool is_loaders(const char *variable)
{
    return sets(variable, "LD_PRELOAD") || sets(variable, "LD_AUDIT");
}

bool ms_command_environment(struct ms_command *command, bool apart)
{
    size_t count = 0, kept = 0;
    while (environ && environ[count]) {
        count++;
    }
    command->environment_bytes = ms_pointers_bytes(count + 2);
    char **environment = ms_pages_map(command->environment_bytes);
    command->environment = environment;
    if (!environment) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (apart && is_loaders(environ[i])) {
            continue;
        }
        environment[kept] = environ[i];
        if (sets(environ[i], "LD_PRELOAD")) {
            preload_without(environ[i] + strlen("LD_PRELOAD="), command);
            environment[kept] = command->preload;
        }
        kept++;
    }
    environment[kept] = (char *)MS_PROBING "=1"; /* /etc/ld.so.preload cannot be bypassed */
    return true;
}

void ms_command_free(struct ms_command *command)
{
    if (command->environment) {
        ms_pages_unmap(command->environment, command->environment_bytes);
        command->environment = NULL;
    }
}

_Noreturn void ms_command_leave(int code)
{
    for (;;) {
        (void)syscall(SYS_exit_group, code);
    }
}
