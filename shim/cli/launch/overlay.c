/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts an overlay over every folder that has no other mount below it, in a mount namespace of its
 * own. An unprivileged user cannot overlay the root itself, because the mounts below it are locked.
 * So its folders are overlaid one by one. */
#include "shim/cli/launch/overlay.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/buffer.h"

#define DEEPEST       16 /* levels of folders with mounts below them */
#define FD_PATH_BYTES 32

struct overlay {
    struct ms_buffer mounts; /* mount points, each with a zero byte at its end */
    const char *scratch, *user_option;
    unsigned count;
    char where[PATH_MAX]; /* the folder that is being covered */
};

/* ---- mount points ---- */

/* \040 and the like stand for blanks. */
static void unescape(char *text)
{
    char *to = text;

    for (; *text; text++, to++) {
        unsigned code;

        if (text[0] == '\\' && sscanf(text + 1, "%3o", &code) == 1) {
            *to = (char)code;
            text += 3;
        } else {
            *to = *text;
        }
    }
    *to = '\0';
}

static int read_mounts(struct ms_buffer *mounts)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char *line = NULL;
    size_t room = 0;

    if (!file) {
        return errno;
    }
    while (getline(&line, &room, file) > 0) {
        char point[PATH_MAX];

        if (sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1) {
            unescape(point);
            ms_buffer_append(mounts, point, strlen(point) + 1);
        }
    }
    free(line);
    (void)fclose(file);
    return mounts->failed ? ENOMEM : 0;
}

static bool has_mounts_below(const struct overlay *overlay, const char *folder)
{
    const size_t length = strcmp(folder, "/") == 0 ? 0 : strlen(folder);

    for (size_t i = 0; i < overlay->mounts.bytes; i += strlen(overlay->mounts.at + i) + 1) {
        const char *point = overlay->mounts.at + i;

        if (strncmp(point, folder, length) == 0 && point[length] == '/' && point[length + 1]) {
            return true;
        }
    }
    return false;
}

/* Whether it is a file system of the kernel's own, wherever it is mounted (for example below a
 * container's root): it cannot be overlaid, and has no files to protect. */
static bool is_kernels(const char *folder)
{
    static const long kinds[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, DEVPTS_SUPER_MAGIC,
                                 CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC};
    struct statfs status;

    if (statfs(folder, &status) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if ((long)status.f_type == kinds[i]) {
            return true;
        }
    }
    return false;
}

static bool is_left_alone(const char *folder)
{
    static const char *const alone[] = {"/dev", "/proc", "/sys", "/run"};

    for (size_t i = 0; i < sizeof(alone) / sizeof(*alone); i++) {
        if (strcmp(folder, alone[i]) == 0) {
            return true;
        }
    }
    return is_kernels(folder);
}

/* ---- namespaces ---- */

static int write_file(const char *path, const char *text)
{
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    int error = 0;

    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text)) {
        error = errno;
    }
    if (file >= 0) {
        (void)close(file);
    }
    return error;
}

/* A user who may not mount gets a user namespace in which that is allowed, with the same user
 * id. */
static int enter_namespaces(struct overlay *overlay)
{
    const unsigned user = getuid(), group = getgid();
    char map[64];
    int error;

    if (unshare(CLONE_NEWNS) == 0) {
        return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0 : errno;
    }
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return errno;
    }
    overlay->user_option = ",userxattr";
    (void)write_file("/proc/self/setgroups", "deny");
    (void)snprintf(map, sizeof(map), "%u %u 1", user, user);
    error = write_file("/proc/self/uid_map", map);
    (void)snprintf(map, sizeof(map), "%u %u 1", group, group);
    error = error ? error : write_file("/proc/self/gid_map", map);
    return error || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? error : errno;
}

/* ---- layers ---- */

/* A path to what the descriptor refers to, even if that was renamed. */
static void path_of(int folder, char path[static FD_PATH_BYTES])
{
    (void)snprintf(path, FD_PATH_BYTES, "/proc/self/fd/%d", folder);
}

/* Colons and commas separate the options of an overlay. */
static bool is_option_word(const char *path)
{
    return strpbrk(path, ":,\\") == NULL;
}

static int lay(struct overlay *overlay, int folder)
{
    char upper[PATH_MAX], work[PATH_MAX], place[FD_PATH_BYTES], options[3 * PATH_MAX];
    struct stat info;

    overlay->count++;
    if (snprintf(upper, sizeof(upper), "%s/%u", overlay->scratch, overlay->count) >=
            (int)sizeof(upper) ||
        snprintf(work, sizeof(work), "%s/%u.work", overlay->scratch, overlay->count) >=
            (int)sizeof(work)) {
        return ENAMETOOLONG;
    }
    if (fstat(folder, &info) != 0 || mkdir(upper, 0700) != 0 || mkdir(work, 0700) != 0) {
        return errno;
    }
    /* The covered folder will have the mode of the upper layer. */
    (void)chmod(upper, info.st_mode & 07777);
    path_of(folder, place);
    (void)snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s%s", place, upper,
                   work, overlay->user_option);
    /* ENOENT: the folder was removed after it was opened; the layer's own folders have just been
     * made. */
    return mount("overlay", place, "overlay", 0, options) == 0 || errno == ENOENT ? 0 : errno;
}

/* The folder is held open, because others may rename or remove it meanwhile. One that is gone needs
 * no layer. */
static int cover(struct overlay *overlay, const char *path)
{
    const int folder = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error;

    if (folder < 0) {
        return errno == ENOENT || errno == ENOTDIR ? 0 : errno;
    }
    error = lay(overlay, folder);
    (void)close(folder);
    return error;
}

static int cover_below(struct overlay *overlay, const char *folder, int depth);

/* Covers a folder, or its contents if other file systems are mounted below it. */
static int cover_all(struct overlay *overlay, const char *folder, int depth)
{
    int error;

    if (is_left_alone(folder) || strcmp(folder, overlay->scratch) == 0) {
        return 0;
    }
    if (has_mounts_below(overlay, folder)) {
        return depth < DEEPEST ? cover_below(overlay, folder, depth) : ELOOP;
    }
    error = cover(overlay, folder);
    if (error) {
        (void)snprintf(overlay->where, sizeof(overlay->where), "%s", folder);
    }
    return error;
}

static int cover_below(struct overlay *overlay, const char *folder, int depth)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    int error = 0;

    while (listing && error == 0 && (entry = readdir(listing))) {
        char path[PATH_MAX];
        struct stat info;

        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            snprintf(path, sizeof(path), "%s/%s", strcmp(folder, "/") == 0 ? "" : folder,
                     entry->d_name) < (int)sizeof(path) &&
            lstat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
            error = cover_all(overlay, path, depth + 1);
        }
    }
    if (listing) {
        (void)closedir(listing);
    }
    return error;
}

/* Mounts the folder as it was before it was covered. */
static int uncover(int folder, const char *path)
{
    char held[FD_PATH_BYTES];

    path_of(folder, held);
    return mount(held, path, NULL, MS_BIND, NULL) == 0 ? 0 : errno;
}

static int mount_scratch(const char *scratch, uint64_t room_bytes)
{
    char options[64] = "mode=0700";

    if (room_bytes > 0) {
        (void)snprintf(options, sizeof(options), "mode=0700,size=%" PRIu64, room_bytes);
    }
    return mount("tmpfs", scratch, "tmpfs", 0, options) == 0 ? 0 : errno;
}

static int enter(struct overlay *overlay, uint64_t room_bytes, const char *kept)
{
    char current[PATH_MAX];
    int error = is_option_word(overlay->scratch) ? 0 : ENAMETOOLONG;
    int folder = -1;

    if (error == 0) {
        error = getcwd(current, sizeof(current)) ? enter_namespaces(overlay) : errno;
    }
    error = error ? error : mount_scratch(overlay->scratch, room_bytes);
    /* A file system can be mounted here only if it was opened in this namespace. */
    if (error == 0 && (folder = open(kept, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) {
        error = errno;
    }
    error = error ? error : read_mounts(&overlay->mounts);
    error = error ? error : cover_all(overlay, "/", 0);
    error = error ? error : uncover(folder, kept);
    if (error == 0 && chdir(current) != 0) {
        error = errno;
    }
    if (folder >= 0) {
        (void)close(folder);
    }
    return error;
}

int ms_overlay_enter(const char *scratch, uint64_t room_bytes, const char *kept, char *where,
                     size_t where_bytes)
{
    struct overlay overlay = {.scratch = scratch, .user_option = ""};
    const int error = enter(&overlay, room_bytes, kept);

    (void)snprintf(where, where_bytes, "%s", overlay.where[0] ? overlay.where : "/");
    ms_buffer_free(&overlay.mounts);
    return error;
}

int ms_overlay_try(const char *scratch, const char *kept, char *where, size_t where_bytes)
{
    int ends[2], error = ECHILD;
    pid_t child;

    where[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return errno;
    }
    child = fork();
    if (child == 0) {
        error = ms_overlay_enter(scratch, 0, kept, where, where_bytes);
        (void)!write(ends[1], &error, sizeof(error));
        (void)!write(ends[1], where, strlen(where) + 1);
        _exit(0);
    }
    (void)close(ends[1]);
    if (child > 0) {
        if (read(ends[0], &error, sizeof(error)) != (ssize_t)sizeof(error)) {
            error = ECHILD;
        }
        if (read(ends[0], where, where_bytes - 1) <= 0) {
            where[0] = '\0';
        }
        (void)waitpid(child, NULL, 0);
    }
    (void)close(ends[0]);
    return error;
}
