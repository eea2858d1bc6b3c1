/* SPDX-License-Identifier: Apache-2.0 */
/* The file below the writer: allocates space ahead of use, maps windows, and copies where mappings
 * fail. */
#include "report/write/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/base/cancel.h"
#include "allocator/base/containers/pages.h"
#include "report/trace/format.h"
#include "report/write/window_guard.h"

/* Out of the way of programs that count on low numbers, or close all of them */
#define HIGH_FD    700
#define ZERO_BYTES 4096

int ms_trace_file_create(struct ms_trace_file *file, const char *path)
{
    struct stat status;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    if (fd < 0) {
        return errno;
    }

    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);

    if (high >= 0) {
        close(fd);
        fd = high;
    }
    if (fstat(fd, &status) != 0) {
        int error = errno;
        close(fd);
        unlink(path);
        return error;
    }
    /* Some file systems have no locks: readers then think that the process has ended. */
    (void)flock(fd, LOCK_EX | LOCK_NB);
    file->fd = fd;
    file->device = status.st_dev;
    file->inode = status.st_ino;
    file->bytes = 0;
    file->copied = false;
    atomic_store_explicit(&file->error, 0, memory_order_relaxed);
    file->windows = mmap(NULL, (size_t)MS_FILE_WINDOWS * MS_EXTENT_BYTES, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file->windows == MAP_FAILED) {
        close(fd);
        unlink(path);
        return ENOMEM;
    }
    memset(file->used, 0, sizeof(file->used));
    file->copied =
        !ms_guard_add(file->windows, (size_t)MS_FILE_WINDOWS * MS_EXTENT_BYTES, &file->error);
    snprintf(file->path, sizeof(file->path), "%s", path);
    return 0;
}

int ms_trace_file_rename(struct ms_trace_file *file, const char *path)
{
    if (rename(file->path, path) != 0) {
        return errno;
    }
    (void)snprintf(file->path, sizeof(file->path), "%s", path);
    return 0;
}

static bool is_ours(const struct ms_trace_file *file, int fd, uint64_t *bytes)
{
    struct stat status;

    if (fd < 0 || fstat(fd, &status) != 0 || status.st_dev != file->device ||
        status.st_ino != file->inode) {
        return false;
    }
    *bytes = (uint64_t)status.st_size;
    return true;
}

static int fail(struct ms_trace_file *file, int error)
{
    atomic_store_explicit(&file->error, error, memory_order_relaxed);
    return error;
}

/* Some programs close descriptors that they did not open (all daemons do), and get the same number
 * for a file of their own, which must not be written here. */
static int check_fd(struct ms_trace_file *file)
{
    uint64_t bytes;
    const int known = atomic_load_explicit(&file->error, memory_order_relaxed);

    if (known) {
        return known;
    }
    if (!is_ours(file, file->fd, &bytes)) {
        const int fd = open(file->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

        if (fd < 0) {
            file->fd = -1;
            return errno;
        }
        if (!is_ours(file, fd, &bytes)) {
            close(fd);
            file->fd = -1;
            return ENOENT;
        }
        (void)flock(fd, LOCK_EX | LOCK_NB);
        file->fd = fd;
    }
    /* Somebody has cut the file: later writes would have nothing in front of them. */
    return bytes < file->bytes ? fail(file, ESTALE) : 0;
}

/* For file systems that cannot allocate ahead: writing zeros does the same. */
static int write_zeros(int fd, uint64_t offset)
{
    static const char zeros[ZERO_BYTES];

    for (uint64_t done = 0; done < MS_EXTENT_BYTES;) {
        ssize_t wrote = pwrite(fd, zeros, sizeof(zeros), (off_t)(offset + done));

        if (wrote < 0 && errno != EINTR) {
            return errno;
        }
        done += wrote > 0 ? (uint64_t)wrote : 0;
    }
    return 0;
}

static int allocate(int fd, uint64_t offset)
{
    int result;

    do {
        result = fallocate(fd, 0, (off_t)offset, MS_EXTENT_BYTES);
    } while (result != 0 && errno == EINTR);
    if (result == 0) {
        return 0;
    }
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
        return errno;
    }
    return write_zeros(fd, offset);
}

/* Beyond this limit the kernel would send SIGXFSZ, which ends the application. */
static bool is_beyond_limit(uint64_t end)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           end > limit.rlim_cur;
}

int ms_trace_file_grow(struct ms_trace_file *file, uint64_t *offset)
{
    int error = check_fd(file);

    if (error) {
        return error;
    }
    if (is_beyond_limit(file->bytes + MS_EXTENT_BYTES)) {
        return EFBIG;
    }
    error = allocate(file->fd, file->bytes);
    if (error) {
        (void)!ftruncate(file->fd, (off_t)file->bytes);
        return error;
    }
    *offset = file->bytes;
    file->bytes += MS_EXTENT_BYTES;
    return 0;
}

/* ---- windows ---- */

/* Reads the whole extent from the file. 0 or an errno. */
static int read_extent(const struct ms_trace_file *file, uint64_t offset, char *to)
{
    for (size_t done = 0; done < MS_EXTENT_BYTES;) {
        const ssize_t got =
            pread(file->fd, to + done, MS_EXTENT_BYTES - done, (off_t)(offset + done));

        if (got == 0 || (got < 0 && errno != EINTR)) {
            return got == 0 ? ESTALE : errno;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* Puts memory of the process's own, with the extent's bytes, in the window's place. */
static int copy_extent(const struct ms_trace_file *file, uint64_t offset, char *window)
{
    char *memory = ms_pages_map(MS_EXTENT_BYTES);

    if (!memory) {
        return errno;
    }

    int error = read_extent(file, offset, memory);

    if (!error && mremap(memory, MS_EXTENT_BYTES, MS_EXTENT_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
                         window) == MAP_FAILED) {
        error = errno;
    }
    if (error) {
        munmap(memory, MS_EXTENT_BYTES);
    }
    return error;
}

/* By the system call: ThreadSanitizer takes mmap for a store by this thread, and does not see what
 * orders it before those of others. */
static bool map_window(char *window, int protection, int flags, int fd, uint64_t offset)
{
    return syscall(SYS_mmap, window, MS_EXTENT_BYTES, protection, flags | MAP_FIXED, fd,
                   (off_t)offset) != -1;
}

static void give_back(char *window)
{
    (void)map_window(window, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static int map_extent(struct ms_trace_file *file, uint64_t offset, char *window)
{
    if (!file->copied &&
        !map_window(window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file->fd, offset)) {
        const int error = errno;

        give_back(window);
        /* Once other threads store to windows, only this mapping fails; the others stay. */
        if (error == ENOMEM || file->bytes > MS_EXTENT_BYTES) {
            return error;
        }
        ms_trace_file_leave_mappings(file); /* the file system has no mappings */
        if (!file->copied) {
            return error;
        }
    }
    return file->copied ? copy_extent(file, offset, window) : 0;
}

void *ms_trace_file_map(struct ms_trace_file *file, uint64_t offset, int *error)
{
    size_t number = 0;

    *error = check_fd(file);
    while (!*error && file->used[number]) {
        *error = ++number == MS_FILE_WINDOWS ? ENOMEM : 0;
    }
    if (*error) {
        return NULL;
    }

    char *window = file->windows + number * MS_EXTENT_BYTES;

    *error = map_extent(file, offset, window);
    file->offsets[number] = offset;
    file->used[number] = !*error;
    return *error ? NULL : window;
}

void ms_trace_file_unmap(struct ms_trace_file *file, void *window)
{
    if (window) {
        file->used[(size_t)((char *)window - file->windows) / MS_EXTENT_BYTES] = false;
        give_back(window);
    }
}

/* 0; -1 and errno. */
static int write_all(int fd, uint64_t offset, const char *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t wrote = pwrite(fd, from + done, bytes - done, (off_t)(offset + done));

        if (wrote < 0 && errno != EINTR) {
            return -1;
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    return 0;
}

void ms_trace_file_write(struct ms_trace_file *file, uint64_t offset, const void *from,
                         size_t bytes)
{
    const int saved = errno, cancellation = ms_cancel_hold();
    int error = check_fd(file);

    if (!error && is_beyond_limit(offset + bytes)) {
        error = EFBIG;
    }
    if (error || write_all(file->fd, offset, from, bytes) != 0) {
        (void)fail(file, error ? error : errno);
    }
    ms_cancel_let(cancellation);
    errno = saved;
}

void ms_trace_file_put(struct ms_trace_file *file, const void *at, size_t bytes)
{
    const uintptr_t within = (uintptr_t)at - (uintptr_t)file->windows;

    if (!file->copied || within >= (uintptr_t)MS_FILE_WINDOWS * MS_EXTENT_BYTES) {
        return;
    }

    ms_trace_file_write(file, file->offsets[within / MS_EXTENT_BYTES] + within % MS_EXTENT_BYTES,
                        at, bytes);
}

void ms_trace_file_leave_mappings(struct ms_trace_file *file)
{
    if (file->copied) {
        return;
    }

    int error = check_fd(file);

    for (size_t number = 0; number < MS_FILE_WINDOWS; number++) {
        if (!error && file->used[number]) {
            error =
                copy_extent(file, file->offsets[number], file->windows + number * MS_EXTENT_BYTES);
        }
    }
    file->copied = !error;
    if (error) {
        (void)fail(file, error);
    }
}

void ms_trace_file_cut(struct ms_trace_file *file, uint64_t offset)
{
    if (offset + MS_EXTENT_BYTES == file->bytes && check_fd(file) == 0 &&
        ftruncate(file->fd, (off_t)offset) == 0) {
        file->bytes = offset;
    }
}

void ms_trace_file_touch(struct ms_trace_file *file)
{
    if (check_fd(file) == 0) {
        (void)futimens(file->fd, NULL);
    }
}

int ms_trace_file_error(struct ms_trace_file *file)
{
    const int error = atomic_load_explicit(&file->error, memory_order_relaxed);
    uint64_t bytes;

    /* If a store found the error first, the reason is unknown: it was a cut if the file is short
     * now. */
    return error && is_ours(file, file->fd, &bytes) && bytes < file->bytes ? ESTALE : error;
}

void ms_trace_file_close(struct ms_trace_file *file)
{
    uint64_t bytes;

    if (is_ours(file, file->fd, &bytes)) {
        close(file->fd);
    }
    file->fd = -1;
    ms_guard_remove(file->windows);
    munmap(file->windows, (size_t)MS_FILE_WINDOWS * MS_EXTENT_BYTES);
    file->windows = NULL;
}
