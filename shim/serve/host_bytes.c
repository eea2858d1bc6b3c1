#include "shim/serve/host_bytes.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/identity.h"

#define STAYS_BYTES (2ULL << 30)

/* Control groups tell what they use with the page cache in it; what is inactive there is free to
 * take (as the kubelet counts, too). */
struct names {
    const char *limit, *usage, *inactive;
};
static const struct names second = {"memory.max", "memory.current", "inactive_file"};
static const struct names first = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"};

/* No path is put together: stacks may be small. */
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

static FILE *open_file(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (fd >= 0 && !file) {
        (void)close(fd);
    }
    return file;
}

/* The number in a file; UINT64_MAX where there is none, as where it says "max". */
static uint64_t number_in(int group, const char *name)
{
    uint64_t number = UINT64_MAX;
    FILE *file = open_file(group, name);
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
    FILE *file = open_file(group, "memory.stat");
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

static uint64_t left_here(int group, const struct names *names)
{
    uint64_t limit = number_in(group, names->limit);
    uint64_t used = number_in(group, names->usage);
    if (limit == UINT64_MAX || used == UINT64_MAX) {
        return UINT64_MAX;
    }
    uint64_t inactive = inactive_in(group, names->inactive);
    used -= inactive < used ? inactive : used;
    return limit > used ? limit - used : 0;
}

/* Of the group and of all above it, the least. In a container the group's own path may not exist,
 * and the root stands for it. */
static uint64_t left_in_group(int groups, char *group, const struct names *names)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        int folder = open_folder(groups, group);
        uint64_t here = left_here(folder, names);
        close_folder(folder);
        least = here < least ? here : least;
        char *slash = strrchr(group, '/');
        if (!slash) {
            return least;
        }
        *slash = '\0';
    }
}

static uint64_t left_below(int root, const char *mount, char *group, const struct names *names)
{
    int groups = open_folder(root, mount);
    uint64_t left = left_in_group(groups, group, names);
    close_folder(groups);
    return left;
}

static uint64_t left_in_groups(int root)
{
    char *line = NULL;
    size_t line_bytes = 0;
    uint64_t least = UINT64_MAX;
    FILE *file = open_file(root, "proc/self/cgroup");
    while (file && getline(&line, &line_bytes, file) > 0) {
        uint64_t here = UINT64_MAX;
        line[strcspn(line, "\n")] = '\0';
        /* A group's path begins with a slash: a dot goes where the colon before it is. */
        char *v1 = strstr(line, ":memory:");
        if (strncmp(line, "0::", 3) == 0) {
            line[2] = '.';
            here = left_below(root, "sys/fs/cgroup", line + 2, &second);
        } else if (v1) {
            v1 += strlen(":memory");
            *v1 = '.';
            here = left_below(root, "sys/fs/cgroup/memory", v1, &first);
        }
        least = here < least ? here : least;
    }
    free(line);
    if (file) {
        (void)fclose(file);
    }
    return least;
}

static uint64_t available_in(int root)
{
    char line[256];
    uint64_t kibibytes = 0;
    FILE *file = open_file(root, "proc/meminfo");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kibibytes) == 1) {
            break;
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return kibibytes * 1024;
}

uint64_t ms_host_available_bytes(const char *root)
{
    int folder = open_folder(AT_FDCWD, root[0] != '\0' ? root : "/");
    uint64_t available = available_in(folder);
    uint64_t in_groups = left_in_groups(folder);
    close_folder(folder);
    return in_groups < available ? in_groups : available;
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

bool ms_host_take(uint64_t bytes)
{
    /* Looked at again after so much has been taken; what others take meanwhile is seen then. */
    const uint64_t look_bytes = 256ULL << 20;
    static _Atomic uint64_t left_bytes;
    uint64_t left = atomic_load(&left_bytes);
    do {
        if (left < bytes) {
            uint64_t room = spare(ms_host_available_bytes(""));
            if (room < bytes) {
                return false;
            }
            left = atomic_load(&left_bytes);
            uint64_t fresh = room < look_bytes + bytes ? room : look_bytes + bytes;
            if (atomic_compare_exchange_strong(&left_bytes, &left, fresh - bytes)) {
                return true;
            }
        }
    } while (left < bytes || !atomic_compare_exchange_weak(&left_bytes, &left, left - bytes));
    return true;
}
