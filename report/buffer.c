#include "report/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

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

    if (to) {
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

size_t ms_utf8_length(const char *text, unsigned *code_point)
{
    const unsigned char *at = (const unsigned char *)text;
    static const unsigned smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = 1;
    unsigned point = at[0];

    if (at[0] >= 0xf0 && at[0] < 0xf8) {
        length = 4;
        point = at[0] & 0x07;
    } else if (at[0] >= 0xe0 && at[0] < 0xf0) {
        length = 3;
        point = at[0] & 0x0f;
    } else if (at[0] >= 0xc0 && at[0] < 0xe0) {
        length = 2;
        point = at[0] & 0x1f;
    } else if (at[0] >= 0x80) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
        point = point << 6 | (at[i] & 0x3f);
    }
    if (point < smallest[length] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
        return 0;
    }
    *code_point = point;
    return length;
}

static bool is_printable(unsigned point)
{
    const bool control = point < 0x20 || (point >= 0x7f && point < 0xa0);
    const bool reorders = (point >= 0x200b && point <= 0x200f) ||
                          (point >= 0x2028 && point <= 0x202e) ||
                          (point >= 0x2060 && point <= 0x206f) || point == 0xfeff;

    return !control && !reorders;
}

void ms_buffer_add_plain(struct ms_buffer *buffer, const char *text)
{
    while (*text) {
        unsigned point;
        const size_t length = ms_utf8_length(text, &point);

        if (length > 0 && is_printable(point)) {
            ms_buffer_append(buffer, text, length);
            text += length;
        } else {
            ms_buffer_format(buffer, "\\x%02x", (unsigned char)*text);
            text++;
        }
    }
}

void ms_buffer_free(struct ms_buffer *buffer)
{
    if (buffer->at) {
        munmap(buffer->at, buffer->room);
    }
    *buffer = (struct ms_buffer){0};
}

int ms_buffer_write(const struct ms_buffer *buffer, int fd)
{
    struct rlimit limit;
    size_t done = 0;

    if (buffer->failed) {
        return ENOMEM;
    }
    /* Past this limit the kernel would send SIGXFSZ, which ends the application. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < buffer->bytes) {
        return EFBIG;
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

int ms_buffer_save(const struct ms_buffer *buffer, const char *path)
{
    char temporary[PATH_MAX];
    int error;

    if (snprintf(temporary, sizeof(temporary), "%s.%d", path, (int)getpid()) >=
        (int)sizeof(temporary)) {
        return ENAMETOOLONG;
    }

    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

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
