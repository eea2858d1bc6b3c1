/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory the host has left, and how much of it may be used for spilling. */
#include "shim/tables/host_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/cancel.h"
#include "shim/tables/identity.h"

#define STAYS_BYTES (2ULL << 30)

/* A control group's usage includes its page cache; the inactive part of that can be taken (as the
 * kubelet counts, too). */
struct host_names {
    const char *limit, *usage, *inactive;
};
static const struct host_names second = {"memory.max", "memory.current", "inactive_file"};
static const struct host_names first = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                        "total_inactive_file"};

/* No path is assembled, because stacks may be small. */
static int open_folder(int folder, const char *name)
{
    return openat(folder, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void close_folder(int folder)
{
    if (folder >= 0) {
        (void)close(folder);
    }
}

FILE *ms_host_file(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (fd >= 0 && !file) {
        (void)close(fd);
    }
    return file;
}

/* The number in a file; UINT64_MAX if there is none, or it says "max". */
static uint64_t number_in(int group, const char *name)
{
    uint64_t number = UINT64_MAX;
    FILE *file = ms_host_file(group, name);
    if (file) {
        if (fscanf(file, "%" SCNu64, &number) != 1) {
            number = UINT64_MAX;
        }
        (void)fclose(file);
    }
    return number;
}

static uint64_t inactive_in(int group, const char *key)
{
    char name[64];
    uint64_t number = 0;
    uint64_t found = 0;
    FILE *file = ms_host_file(group, "memory.stat");
    while (file && fscanf(file, "%63s %" SCNu64, name, &number) == 2) {
        if (strcmp(name, key) == 0) {
            found = number;
            break;
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return found;
}

/* The least that any group leaves. */
struct least {
    const struct host_names *names;
    uint64_t bytes;
};

static void read_group(void *ctx, int group, const char *path)
{
    struct least *least = ctx;
    uint64_t limit = number_in(group, least->names->limit);
    uint64_t used = number_in(group, least->names->usage);
    (void)path;
    if (limit == UINT64_MAX || used == UINT64_MAX) {
        return;
    }
    uint64_t inactive = inactive_in(group, least->names->inactive);
    used -= inactive < used ? inactive : used;
    uint64_t left = limit > used ? limit - used : 0;
    least->bytes = left < least->bytes ? left : least->bytes;
}

/* Visits the group and all above it. In a container the group's own path may not exist; then the
 * root stands for it. */
static void visit_up(int root, const char *mount, char *group,
                     void (*visit)(void *ctx, int folder, const char *group), void *ctx)
{
    int groups = open_folder(root, mount);
    for (;;) {
        int folder = open_folder(groups, group);
        if (folder >= 0) {
            visit(ctx, folder, group);
            close_folder(folder);
        }
        char *slash = strrchr(group, '/');
        if (!slash) {
            break;
        }
        *slash = '\0';
    }
    close_folder(groups);
}

static void visit_groups(int root, void (*second_version)(void *, int, const char *),
                         void (*first_version)(void *, int, const char *), void *second_ctx,
                         void *first_ctx)
{
    char *line = NULL;
    size_t line_bytes = 0;
    FILE *file = ms_host_file(root, "proc/self/cgroup");
    while (file && getline(&line, &line_bytes, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        /* A group's path begins with a slash. The colon before it is replaced by a dot. */
        char *v1 = strstr(line, ":memory:");
        if (strncmp(line, "0::", 3) == 0) {
            line[2] = '.';
            visit_up(root, "sys/fs/cgroup", line + 2, second_version, second_ctx);
        } else if (v1 && first_version) {
            v1 += strlen(":memory");
            *v1 = '.';
            visit_up(root, "sys/fs/cgroup/memory", v1, first_version, first_ctx);
        }
    }
    free(line);
    if (file) {
        (void)fclose(file);
    }
}

static uint64_t left_in_groups(int root)
{
    struct least of_second = {&second, UINT64_MAX};
    struct least of_first = {&first, UINT64_MAX};
    visit_groups(root, read_group, read_group, &of_second, &of_first);
    return of_second.bytes < of_first.bytes ? of_second.bytes : of_first.bytes;
}

static int open_root(const char *root)
{
    return open_folder(AT_FDCWD, root[0] != '\0' ? root : "/");
}

void ms_host_groups(const char *root, void (*visit)(void *ctx, int folder, const char *group),
                    void *ctx)
{
    int folder = open_root(root);
    visit_groups(folder, visit, NULL, ctx, NULL);
    close_folder(folder);
}

static bool read_available(int root, uint64_t *bytes)
{
    char line[256];
    uint64_t kibibytes = 0;
    bool found = false;
    FILE *file = ms_host_file(root, "proc/meminfo");
    while (file && !found && fgets(line, sizeof(line), file)) {
        found = sscanf(line, "MemAvailable: %" SCNu64 " kB", &kibibytes) == 1;
    }
    if (file) {
        (void)fclose(file);
    }
    *bytes = kibibytes * 1024;
    return found;
}

bool ms_host_measure(const char *root, uint64_t *available_bytes)
{
    const int error = errno, cancellation = ms_cancel_hold();
    int folder = open_root(root);
    bool known = read_available(folder, available_bytes);
    uint64_t in_groups = left_in_groups(folder);
    close_folder(folder);
    if (in_groups < *available_bytes) {
        *available_bytes = in_groups;
    }
    ms_cancel_let(cancellation);
    errno = error;
    return known;
}

uint64_t ms_host_available_bytes(const char *root)
{
    uint64_t available = 0;
    return ms_host_measure(root, &available) ? available : 0;
}

static uint64_t spare(uint64_t available_bytes)
{
    return available_bytes > STAYS_BYTES ? available_bytes - STAYS_BYTES : 0;
}

uint64_t ms_host_share_bytes(uint64_t available_bytes)
{
    uint64_t quarter = available_bytes / 4;
    return quarter < spare(available_bytes) ? quarter : spare(available_bytes);
}

uint64_t ms_host_spill_bytes(const struct ms_options *options, char *const *environment,
                             uint64_t available_bytes)
{
    uint32_t ranks = ms_identity_local_ranks(environment);
    uint64_t most = spare(available_bytes) / ranks;
    uint64_t wanted = options->spill_limit_bytes != 0
                          ? options->spill_limit_bytes
                          : ms_host_share_bytes(available_bytes) / ranks;
    if (!options->spill) {
        return 0;
    }
    return wanted < most ? wanted : most;
}

static _Atomic uint64_t left_bytes;   /* of the sample that ms_host_take may take from */
static _Atomic uint64_t beyond_bytes; /* what was measured beyond it */

void ms_host_note(uint64_t available_bytes)
{
    uint64_t none = 0;
    if (atomic_load(&left_bytes) == 0) {
        (void)atomic_compare_exchange_strong(&beyond_bytes, &none, spare(available_bytes));
    }
}

bool ms_host_take(uint64_t bytes)
{
    /* After so much has been taken, it is measured again, which includes what other programs
     * took. */
    const uint64_t sample_bytes = 256ULL << 20;
    uint64_t left = atomic_load(&left_bytes);
    do {
        if (left < bytes) {
            /* A program may take the descriptors or /proc away. */
            uint64_t available = 0;
            uint64_t room = ms_host_measure("", &available) ? spare(available)
                                                            : left + atomic_load(&beyond_bytes);
            if (room < bytes) {
                return false;
            }
            left = atomic_load(&left_bytes);
            uint64_t fresh = room < sample_bytes + bytes ? room : sample_bytes + bytes;
            if (atomic_compare_exchange_strong(&left_bytes, &left, fresh - bytes)) {
                atomic_store(&beyond_bytes, room - fresh);
                return true;
            }
        }
    } while (left < bytes || !atomic_compare_exchange_weak(&left_bytes, &left, left - bytes));
    return true;
}
