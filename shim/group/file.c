/* SPDX-License-Identifier: Apache-2.0 */
/* The files of groups. A stranger might have made such a file. So links are never followed, and a
 * file is used only if it belongs to this user alone. */
#include "shim/group/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/cancel.h"
#include "allocator/base/clock.h"
#include "shim/group/alive.h"

#define UUID_CHARACTERS 32u
#define LOCK_WAIT_NS    (UINT64_C(2) * MS_NS_PER_S)
#define FIRST_NAP_NS    20000 /* it is held for some tens of microseconds */
#define LONGEST_NAP_NS  10000000
#define OPEN_TURNS      8 /* the file was removed while it was opened */

/* ---- names ---- */

static int prefix_of(char *out, size_t bytes)
{
    return snprintf(out, bytes, "memshim-%u-", (unsigned)geteuid());
}

bool ms_group_path(const char *folder, const char *name, const uint8_t uuid[16],
                   char path[MS_GROUP_PATH_BYTES])
{
    char prefix[32], digits[UUID_CHARACTERS + 1];
    (void)prefix_of(prefix, sizeof prefix);
    for (size_t i = 0; i < 16; i++) {
        (void)snprintf(digits + 2 * i, 3, "%02x", uuid[i]);
    }
    const int length =
        snprintf(path, MS_GROUP_PATH_BYTES, "%s/%s%s-%s", folder, prefix, name, digits);
    return length > 0 && length < (int)MS_GROUP_PATH_BYTES && strchr(name, '/') == NULL;
}

bool ms_group_name_of(const char *path, char *name, size_t name_bytes)
{
    char prefix[32];
    const char *slash = strrchr(path, '/');
    const char *file = slash != NULL ? slash + 1 : path;
    const size_t begin = (size_t)prefix_of(prefix, sizeof prefix);
    const size_t length = strlen(file);
    if (strncmp(file, prefix, begin) != 0 || length < begin + UUID_CHARACTERS + 2 ||
        file[length - UUID_CHARACTERS - 1] != '-' ||
        strspn(file + length - UUID_CHARACTERS, "0123456789abcdef") != UUID_CHARACTERS ||
        (strncmp(file + begin, "run-", 4) != 0 && strncmp(file + begin, "group-", 6) != 0)) {
        return false;
    }
    (void)snprintf(name, name_bytes, "%.*s", (int)(length - begin - UUID_CHARACTERS - 1),
                   file + begin);
    return true;
}

/* ---- one file ---- */

/* Asks again and again, because flock() itself waits for ever, and whoever holds the lock may be
 * stopped. */
static bool lock(int fd)
{
    const uint64_t end_ns = ms_clock_ns() + LOCK_WAIT_NS;
    uint64_t nap_ns = FIRST_NAP_NS;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || ms_clock_ns() >= end_ns) {
            return false;
        }
        ms_nap(nap_ns);
        nap_ns = 2 * nap_ns < LONGEST_NAP_NS ? 2 * nap_ns : LONGEST_NAP_NS;
    }
    return true;
}

static const char *trouble_with(const struct stat *status)
{
    if (!S_ISREG(status->st_mode) || status->st_uid != geteuid()) {
        return "a file of its name in /dev/shm belongs to another user";
    }
    if ((status->st_mode & (S_IRWXG | S_IRWXO)) != 0 || status->st_nlink > 1) {
        return "other users may reach the file of its name in /dev/shm";
    }
    return NULL;
}

/* Null: the file is locked and valid; "": it was removed meanwhile. */
static const char *lock_good(int fd, struct stat *status)
{
    const char *why = fstat(fd, status) != 0 ? "its file cannot be examined" : trouble_with(status);
    if (why == NULL && !lock(fd)) {
        why = "its file stayed locked";
    }
    if (why == NULL && fstat(fd, status) != 0) {
        why = "its file cannot be examined";
    }
    return why == NULL && status->st_nlink == 0 ? "" : why;
}

/* All blocks of the file are allocated now: a page without memory would later be a SIGBUS. */
static const char *map(struct ms_group_file *file, const struct stat *status)
{
    const size_t bytes = sizeof *file->region;
    file->made = status->st_size == 0;
    if (!file->made && (size_t)status->st_size != bytes) {
        return "its file in /dev/shm is of another version of memshim";
    }
    if (file->made && posix_fallocate(file->fd, 0, (off_t)bytes) != 0) {
        (void)ftruncate(file->fd, 0);
        return "/dev/shm has no room";
    }
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (mapped == MAP_FAILED) {
        return "its file in /dev/shm cannot be mapped";
    }
    file->region = mapped;
    file->made = file->region->magic == 0; /* or its maker was killed before it finished */
    if (!file->made && file->region->magic != MS_GROUP_MAGIC) {
        (void)munmap(mapped, bytes);
        return "its file in /dev/shm is of another version of memshim";
    }
    return NULL;
}

static const char *open_once(const char *path, bool make, struct ms_group_file *file)
{
    struct stat status;
    file->fd =
        open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (make ? O_CREAT : 0),
             S_IRUSR | S_IWUSR);
    if (file->fd < 0) {
        return errno == ENOENT ? "there is no /dev/shm"
               : errno == ELOOP || errno == EACCES
                   ? "a file of its name in /dev/shm belongs to another user"
                   : "/dev/shm cannot be written to";
    }
    const char *why = lock_good(file->fd, &status);
    why = why == NULL ? map(file, &status) : why;
    if (why != NULL) {
        (void)close(file->fd);
    }
    return why;
}

bool ms_group_file_open(const char *path, bool make, struct ms_group_file *file, const char **why)
{
    const int cancellation = ms_cancel_hold();
    *why = "";
    for (int turn = 0; turn < OPEN_TURNS && *why != NULL && **why == '\0'; turn++) {
        *why = open_once(path, make, file);
    }
    file->cancellation = cancellation;
    if (*why != NULL) {
        ms_cancel_let(cancellation);
    }
    return *why == NULL;
}

/* Unlocked explicitly, because a child that was forked meanwhile has the file open, too. */
void ms_group_file_close(struct ms_group_file *file, bool keep)
{
    (void)flock(file->fd, LOCK_UN);
    (void)close(file->fd);
    if (!keep) {
        (void)munmap(file->region, sizeof *file->region);
    }
    ms_cancel_let(file->cancellation);
}

/* ---- members that have ended ---- */

uint32_t ms_group_reap(struct ms_group_region *region)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < MS_GROUP_MEMBERS_MAX; i++) {
        struct ms_group_slot *slot = &region->slots[i];
        const uint32_t pid = atomic_load(&slot->pid);
        if (pid != 0 && ms_process_lives(pid, slot->start_ticks)) {
            left++;
            continue;
        }
        atomic_store(&slot->pid, 0);
        atomic_store(&slot->leased_bytes, 0);
        atomic_store(&slot->used_bytes, 0);
        atomic_store(&slot->spare_bytes, 0);
    }
    return left;
}

/* ---- all files ---- */

void ms_group_list(const char *folder, ms_group_each_t each, void *ctx)
{
    char name[MS_GROUP_PATH_BYTES], path[MS_GROUP_PATH_BYTES];
    const char *why = NULL;
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    while (listing != NULL && (entry = readdir(listing)) != NULL) {
        struct ms_group_file file;
        if (!ms_group_name_of(entry->d_name, name, sizeof name) ||
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path ||
            !ms_group_file_open(path, false, &file, &why)) {
            continue;
        }
        each(ctx, path, file.region);
        ms_group_file_close(&file, false);
    }
    if (listing != NULL) {
        (void)closedir(listing);
    }
}

/* Members of another pid namespace cannot be seen from here, and may live. */
static void sweep_one(void *ctx, const char *path, struct ms_group_region *region)
{
    uint32_t *gone = ctx;
    const bool seen = region->magic == 0 || region->pid_namespace == ms_pid_namespace();
    if (seen && ms_group_reap(region) == 0 && unlink(path) == 0) {
        (*gone)++;
    }
}

uint32_t ms_group_sweep(const char *folder)
{
    uint32_t gone = 0;
    ms_group_list(folder, sweep_one, &gone);
    return gone;
}
