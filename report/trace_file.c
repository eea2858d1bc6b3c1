#include "report/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/format.h"

#define HIGH_FD    700 /* out of the way of programs that count on low numbers or close them all */
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
    /* Some file systems have no locks: then a reader takes the process for ended. */
    (void)flock(fd, LOCK_EX | LOCK_NB);
    file->fd = fd;
    file->device = status.st_dev;
    file->inode = status.st_ino;
    file->bytes = 0;
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

static bool is_ours(const struct ms_trace_file *file, int fd)
{
    struct stat status;

    return fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == file->device &&
           status.st_ino == file->inode;
}

/* Programs close descriptors that they did not open (daemons all of them) and get the number again
 * for a file of their own, which must not be written here. */
static int check_fd(struct ms_trace_file *file)
{
    if (is_ours(file, file->fd)) {
        return 0;
    }

    int fd = open(file->path, O_RDWR | O_CLOEXEC);

    if (fd < 0) {
        file->fd = -1;
        return errno;
    }
    if (!is_ours(file, fd)) {
        close(fd);
        file->fd = -1;
        return ENOENT;
    }
    (void)flock(fd, LOCK_EX | LOCK_NB);
    file->fd = fd;
    return 0;
}

/* Where the file system cannot allocate ahead, written zeros do the same. */
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

int ms_trace_file_grow(struct ms_trace_file *file, uint64_t *offset)
{
    struct rlimit limit;
    int error = check_fd(file);

    if (error) {
        return error;
    }
    /* Past this limit the kernel would send SIGXFSZ, which ends the application. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        file->bytes + MS_EXTENT_BYTES > limit.rlim_cur) {
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

void *ms_trace_file_map(struct ms_trace_file *file, uint64_t offset, int *error)
{
    *error = check_fd(file);
    if (*error) {
        return NULL;
    }

    void *extent = mmap(NULL, MS_EXTENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                        file->fd, (off_t)offset);

    if (extent == MAP_FAILED) {
        *error = errno;
        return NULL;
    }
    return extent;
}

void ms_trace_file_unmap(void *extent)
{
    if (extent) {
        munmap(extent, MS_EXTENT_BYTES);
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

void ms_trace_file_close(struct ms_trace_file *file)
{
    if (is_ours(file, file->fd)) {
        close(file->fd);
    }
    file->fd = -1;
}
