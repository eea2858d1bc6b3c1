/* SPDX-License-Identifier: Apache-2.0 */
/* The folder in memory that the processes of a dry run share, and folders that other dry runs
 * left. */
#include "shim/cli/dry_run/shared.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/buffer.h"
#include "shim/cli/dry_run/complaint.h"

#define SHARED      "memshim-dry-run."
#define OWNER       "owner"
#define JUST_MADE_S 30

static const char *shared_root(void)
{
    const char *folder = getenv("TMPDIR");

    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : folder && *folder ? folder : "/tmp";
}

/* Opens the file that shows that a dry run lives: its process holds a lock on it, which ends with
 * the process in any case. -1 and errno: there is no such file, or it is another user's. */
static int lock_owner(const char *folder, int flags)
{
    char path[PATH_MAX];
    const int file = snprintf(path, sizeof(path), "%s/" OWNER, folder) < (int)sizeof(path)
                         ? open(path, O_RDWR | O_CLOEXEC | flags, 0600)
                         : -1;

    if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0) {
        (void)close(file);
        return -1;
    }
    return file;
}

/* Takes the lock for as long as this process lives. */
static bool own(const char *folder)
{
    return lock_owner(folder, O_CREAT) >= 0;
}

/* A folder that was just made has no owner yet. */
static bool has_owner(const char *folder)
{
    const int file = lock_owner(folder, 0);

    if (file >= 0) {
        (void)close(file);
    }
    return file < 0 && errno != ENOENT;
}

/* Whether a process started with `entry` in its environment, which it may have changed since. */
static bool began_with(const char *process, const struct ms_buffer *entry)
{
    char path[64], piece[4096];
    struct ms_buffer all = {0};
    FILE *file = snprintf(path, sizeof(path), "/proc/%.20s/environ", process) < (int)sizeof(path)
                     ? fopen(path, "re")
                     : NULL;
    bool found;

    for (size_t got = 1; file && got > 0;) {
        got = fread(piece, 1, sizeof(piece), file);
        ms_buffer_append(&all, piece, got);
    }
    if (file) {
        (void)fclose(file);
    }
    found = !all.failed && !entry->failed && all.bytes > 0 &&
            memmem(all.at, all.bytes, entry->at, entry->bytes) != NULL;
    ms_buffer_free(&all);
    return found;
}

/* If a dry run is killed, its command ends, too, but perhaps not all processes that the command has
 * started: workers may still use the devices' files. */
static bool is_in_use(const char *folder)
{
    struct ms_buffer entry = {0};
    DIR *processes = opendir("/proc");
    const struct dirent *process;
    bool used = false;

    ms_buffer_format(&entry, "SIMGPU_SHARED=%s/", folder);
    while (!used && processes && (process = readdir(processes))) {
        used = process->d_name[0] >= '1' && process->d_name[0] <= '9' &&
               began_with(process->d_name, &entry);
    }
    if (processes) {
        (void)closedir(processes);
    }
    ms_buffer_free(&entry);
    return used;
}

static bool is_dead(const char *folder)
{
    struct stat status;

    return lstat(folder, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           time(NULL) - status.st_mtime >= JUST_MADE_S && !has_owner(folder) && !is_in_use(folder);
}

void ms_dry_shared_sweep(void)
{
    const char *root = shared_root();
    DIR *folder = opendir(root);
    const struct dirent *entry;
    char path[PATH_MAX];

    while (folder && (entry = readdir(folder))) {
        if (strncmp(entry->d_name, SHARED, strlen(SHARED)) == 0 &&
            snprintf(path, sizeof(path), "%s/%s", root, entry->d_name) < (int)sizeof(path) &&
            is_dead(path)) {
            ms_dry_shared_remove(path);
        }
    }
    if (folder) {
        (void)closedir(folder);
    }
}

bool ms_dry_shared_make(char *path)
{
    const char *folder = shared_root();

    ms_dry_shared_sweep();
    if (snprintf(path, PATH_MAX, "%s/" SHARED "XXXXXX", folder) < PATH_MAX && mkdtemp(path) &&
        own(path)) {
        return true;
    }
    complain("no folder can be made in %s: %s", folder, strerror(errno));
    return false;
}

void ms_dry_shared_asked(const char *path, struct ms_dry_asked *asked)
{
    char name[PATH_MAX], line[256];
    FILE *file = snprintf(name, sizeof(name), "%s/devices.asked", path) < (int)sizeof(name)
                     ? fopen(name, "re")
                     : NULL;

    *asked = (struct ms_dry_asked){.device = -1};
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "device ", 7) == 0) {
            const int device = (int)strtol(line + 7, NULL, 10);

            asked->device = device > asked->device ? device : asked->device;
        } else if (strncmp(line, "host ", 5) == 0) {
            (void)snprintf(asked->host, sizeof(asked->host), "%s", line + 5);
        } else if (strncmp(line, "hub ", 4) == 0) {
            (void)snprintf(asked->hub, sizeof(asked->hub), "%s", line + 4);
        }
    }
    if (file) {
        (void)fclose(file);
    }
}

static uint64_t read_larger(char **text, uint64_t most)
{
    const uint64_t found = strtoull(*text, text, 10);

    return found > most ? found : most;
}

/* A line for each time that a process needed more than before. */
void ms_dry_shared_cudnn(const char *path, struct ms_dry_cudnn *most)
{
    char name[PATH_MAX], line[96], *end;
    FILE *file = snprintf(name, sizeof(name), "%s/devices.cudnn", path) < (int)sizeof(name)
                     ? fopen(name, "re")
                     : NULL;

    *most = (struct ms_dry_cudnn){0};
    while (file && fgets(line, sizeof(line), file)) {
        end = line;
        most->work_bytes = read_larger(&end, most->work_bytes);
        most->reserve_bytes = read_larger(&end, most->reserve_bytes);
        most->convolution_bytes = read_larger(&end, most->convolution_bytes);
        most->missed_bytes = read_larger(&end, most->missed_bytes);
    }
    if (file) {
        (void)fclose(file);
    }
}

/* The folder holds only plain files, of the simulated devices and of NCCL's double; and, after a
 * run that was killed, the empty mount point of its layer. */
void ms_dry_shared_remove(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;

    while (folder && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)unlinkat(dirfd(folder), entry->d_name,
                           entry->d_type == DT_DIR ? AT_REMOVEDIR : 0);
        }
    }
    if (folder) {
        (void)closedir(folder);
    }
    (void)rmdir(path);
}
