/* SPDX-License-Identifier: Apache-2.0 */
/* A growing buffer on pages of its own. */
#include "allocator/base/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/plain.h"

#define FIRST_ROOM   (64u << 10)
#define FORMAT_BYTES 1024

static bool make_room(struct ms_buffer *buffer, size_t bytes)
{
    size_t room = buffer->room ? buffer->room : FIRST_ROOM;
    void *at;

    if (buffer->failed || bytes > SIZE_MAX / 4 - buffer->bytes) {
        buffer->failed = true;
        return false;
    }
    while (room < buffer->bytes + bytes) {
        room *= 2;
    }
    if (room == buffer->room) {
        return true;
    }
    at = buffer->at ? mremap(buffer->at, buffer->room, room, MREMAP_MAYMOVE)
                    : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        buffer->failed = true;
        return false;
    }
    buffer->at = at;
    buffer->room = room;
    return true;
}

void *ms_buffer_extend(struct ms_buffer *buffer, size_t bytes)
{
    if (!make_room(buffer, bytes)) {
        return NULL;
    }

    void *added = buffer->at + buffer->bytes;

    buffer->bytes += bytes;
    return added;
}

void ms_buffer_append(struct ms_buffer *buffer, const char *from, size_t bytes)
{
    char *to = ms_buffer_extend(buffer, bytes);

    if (to && bytes > 0) { /* memcpy forbids a null `from`, even for 0 bytes */
        memcpy(to, from, bytes);
    }
}

void ms_buffer_add(struct ms_buffer *buffer, const char *text)
{
    ms_buffer_append(buffer, text, strlen(text));
}

void ms_buffer_format(struct ms_buffer *buffer, const char *format, ...)
{
    char text[FORMAT_BYTES];
    va_list values;

    va_start(values, format);

    const int length = vsnprintf(text, sizeof(text), format, values);

    va_end(values);
    ms_buffer_append(buffer, text, length < 0 ? 0 : strnlen(text, sizeof(text)));
}

void ms_buffer_add_plain(struct ms_buffer *buffer, const char *text)
{
    while (*text) {
        char plain[MS_PLAIN_BYTES];

        text += ms_plain_step(text, plain);
        ms_buffer_add(buffer, plain);
    }
}

void ms_buffer_free(struct ms_buffer *buffer)
{
    if (buffer->at) {
        munmap(buffer->at, buffer->room);
    }
    *buffer = (struct ms_buffer){0};
}

/* 0 if the buffer is whole and may be written to a file, or an errno. */
static int is_writable(const struct ms_buffer *buffer)
{
    struct rlimit limit;

    if (buffer->failed) {
        return ENOMEM;
    }
    /* Beyond this limit the kernel would send SIGXFSZ, which ends the application. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < buffer->bytes) {
        return EFBIG;
    }
    return 0;
}

int ms_buffer_write(const struct ms_buffer *buffer, int fd)
{
    size_t done = 0;
    const int error = is_writable(buffer);

    if (error) {
        return error;
    }
    while (done < buffer->bytes) {
        const ssize_t wrote = write(fd, buffer->at + done, buffer->bytes - done);

        if (wrote < 0 && errno != EINTR) {
            return errno;
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    return 0;
}

int ms_buffer_overwrite(const struct ms_buffer *buffer, int fd)
{
    struct stat before;
    const off_t bytes = (off_t)buffer->bytes;
    int error = is_writable(buffer);

    if (!error && fstat(fd, &before) != 0) {
        error = errno;
    }
    if (error || !S_ISREG(before.st_mode)) {
        return error ? error : ms_buffer_write(buffer, fd);
    }
    /* The room is reserved before a byte is overwritten: a full disk is noticed in time. */
    if (bytes > before.st_size) {
        error = posix_fallocate(fd, 0, bytes);
    }
    if (error) {
        (void)ftruncate(fd, before.st_size);
        return error;
    }
    error = ms_buffer_write(buffer, fd);
    if (!error && ftruncate(fd, bytes) != 0) {
        error = errno;
    }
    return error;
}

int ms_buffer_save(const struct ms_buffer *buffer, const char *path)
{
    char temporary[PATH_MAX];
    int error, fd, tries = 16;

    /* Nobody can predict the name, and an existing file or link of that name is not opened. */
    do {
        unsigned random = 0;

        if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random)) {
            random = (unsigned)tries; /* early at boot; O_EXCL is what protects */
        }
        if (snprintf(temporary, sizeof(temporary), "%s.%d.%08x", path, (int)getpid(), random) >=
            (int)sizeof(temporary)) {
            return ENAMETOOLONG;
        }
        fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    } while (fd < 0 && errno == EEXIST && --tries > 0);
    if (fd < 0) {
        return errno;
    }
    error = ms_buffer_write(buffer, fd);
    if (close(fd) != 0 && !error) {
        error = errno;
    }
    if (!error && rename(temporary, path) != 0) {
        error = errno;
    }
    if (error) {
        unlink(temporary);
    }
    return error;
}
