#include "shim/serve/host_bytes.h"

#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

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

static FILE *open_file(const char *root, const char *group, const char *name)
{
    char path[2 * PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s/%s", root, group, name);
    return fopen(path, "re");
}

/* The number in a file; UINT64_MAX where there is none, as where it says "max". */
static uint64_t number_in(const char *root, const char *group, const char *name)
{
    uint64_t number = UINT64_MAX;
    FILE *file = open_file(root, group, name);
    if (file) {
        if (fscanf(file, "%" SCNu64, &number) != 1) {
            number = UINT64_MAX;
        }
        (void)fclose(file);
    }
    return number;
}

static uint64_t inactive_in(const char *root, const char *group, const char *key)
{
    char name[64];
    uint64_t number = 0;
    uint64_t found = 0;
    FILE *file = open_file(root, group, "memory.stat");
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

static uint64_t left_here(const char *root, const char *group, const struct names *names)
{
    uint64_t limit = number_in(root, group, names->limit);
    uint64_t used = number_in(root, group, names->usage);
    if (limit == UINT64_MAX || used == UINT64_MAX) {
        return UINT64_MAX;
    }
    uint64_t inactive = inactive_in(root, group, names->inactive);
    used -= inactive < used ? inactive : used;
    return limit > used ? limit - used : 0;
}

/* Of the group and of all above it, the least. In a container the group's own path may not exist,
 * and the root stands for it. */
static uint64_t left_in_group(const char *root, char *group, const struct names *names)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t here = left_here(root, group, names);
        least = here < least ? here : least;
        char *slash = strrchr(group, '/');
        if (!slash || slash == group) {
            return least;
        }
        *slash = '\0';
    }
}

static uint64_t left_in_groups(const char *root)
{
    char path[PATH_MAX];
    char line[PATH_MAX];
    char group[PATH_MAX + 16];
    uint64_t least = UINT64_MAX;
    (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        uint64_t here = UINT64_MAX;
        line[strcspn(line, "\n")] = '\0';
        const char *v1 = strstr(line, ":memory:");
        if (strncmp(line, "0::", 3) == 0) {
            (void)snprintf(group, sizeof(group), "/.%s", line + 3);
            here = left_in_group(root, group, &second);
        } else if (v1) {
            (void)snprintf(group, sizeof(group), "/memory/.%s", v1 + strlen(":memory:"));
            here = left_in_group(root, group, &first);
        }
        least = here < least ? here : least;
    }
    if (file) {
        (void)fclose(file);
    }
    return least;
}

uint64_t ms_host_available_bytes(const char *root)
{
    char path[PATH_MAX];
    char line[256];
    uint64_t kibibytes = 0;
    (void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kibibytes) == 1) {
            break;
        }
    }
    if (file) {
        (void)fclose(file);
    }
    uint64_t available = kibibytes * 1024;
    uint64_t in_groups = left_in_groups(root);
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
