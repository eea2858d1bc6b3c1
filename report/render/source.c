/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the lines around a line of a Python file, or says why it does not. */
#include "report/render/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/path.h"

#define AROUND     3u
#define MOST_BYTES (4u << 20)
#define LINE_BYTES 200u /* longer lines are cut */
#define FORBIDDEN  "MEMSHIM_SOURCE=off"

const char *ms_source_forbidden(const struct ms_model *model)
{
    for (const char *line = model->header.options; *line; line += *line == '\n') {
        const size_t bytes = strcspn(line, "\n");

        if (bytes == strlen(FORBIDDEN) && strncmp(line, FORBIDDEN, bytes) == 0) {
            return "left out by " FORBIDDEN;
        }
        line += bytes;
    }
    return NULL;
}

/* ---- secrets ---- */

/* The place of `word` in so many bytes, in upper or lower case; null: it is not there. */
static const char *find_word(const char *text, size_t bytes, const char *word)
{
    const size_t length = strlen(word);

    for (size_t i = 0; i + length <= bytes; i++) {
        if (strncasecmp(text + i, word, length) == 0) {
            return text + i;
        }
    }
    return NULL;
}

static bool has_word(const char *text, size_t bytes, const char *const *words)
{
    for (; *words; words++) {
        if (find_word(text, bytes, *words)) {
            return true;
        }
    }
    return false;
}

bool ms_source_looks_secret(const char *path)
{
    static const char *const words[] = {"key", "secret", "credential", "passw", NULL};
    const char *name = ms_base_name(path);

    /* .env, .netrc, .ssh/config: hidden files are not shown. */
    return name[0] == '.' || strstr(path, "/.") || has_word(name, strlen(name), words);
}

/* Whether a line seems to set a password, a token or a key to a literal. "token" marks a secret;
 * "tokens" is the input of a language model. */
static bool is_secret_line(const char *line, size_t bytes)
{
    static const char *const words[] = {"secret",        "passw",     "credential", "api_key",
                                        "apikey",        "api-key",   "access_key", "access_token",
                                        "private_key",   "api_token", "hf_token",   "auth_token",
                                        "authorization", "bearer",    NULL};
    const bool literal = memchr(line, '"', bytes) || memchr(line, '\'', bytes);

    return literal && has_word(line, bytes, words);
}

/* ---- the file ---- */

static bool is_python(const char *path)
{
    const size_t bytes = strlen(path);

    return bytes > 3 && strcmp(path + bytes - 3, ".py") == 0;
}

/* openat2(2), which headers of old distributions lack. */
#define OPENAT2       437
#define NO_MAGICLINKS 0x02u
#define NO_SYMLINKS   0x04u

struct how {
    uint64_t flags, mode, resolve;
};

/* Follows no symbolic link. A kernel older than 5.6 can guarantee that for the last part only. */
static int open_file(const char *path)
{
    struct how how = {.flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                      .resolve = NO_SYMLINKS | NO_MAGICLINKS};
    const int fd = (int)syscall(OPENAT2, AT_FDCWD, path, &how, sizeof(how));

    return fd < 0 && (errno == ENOSYS || errno == EPERM) ? open(path, (int)how.flags) : fd;
}

static const char *read_all(int fd, size_t bytes, struct ms_buffer *text)
{
    char *at = ms_buffer_extend(text, bytes);
    size_t got = 0;

    while (at && got < bytes) {
        const ssize_t part = read(fd, at + got, bytes - got);

        if (part <= 0) {
            return "it cannot be read";
        }
        got += (size_t)part;
    }
    return !at || memchr(at, 0, bytes) ? "it cannot be read" : NULL;
}

static uint64_t changed_unix_ns(const struct stat *status)
{
    return (uint64_t)status->st_mtim.tv_sec * MS_NS_PER_S + (uint64_t)status->st_mtim.tv_nsec;
}

static const char *read_opened(int fd, uint64_t before_unix_ns, struct ms_buffer *text)
{
    struct stat status;

    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        return "it is no file";
    }
    if (changed_unix_ns(&status) > before_unix_ns) {
        return "it was changed after the run began";
    }
    if (status.st_size == 0 || (uint64_t)status.st_size > MOST_BYTES) {
        return "it is too large, or empty";
    }
    return read_all(fd, (size_t)status.st_size, text);
}

/* Null, with the file in `text`; else why not. */
static const char *read_source(const char *path, uint64_t before_unix_ns, struct ms_buffer *text)
{
    if (path[0] != '/') {
        return "its folder is not known";
    }
    if (!is_python(path)) {
        return "it is no Python file";
    }
    if (ms_source_looks_secret(path)) {
        return "by its name it may hold a secret";
    }

    const int fd = open_file(path);

    if (fd < 0) {
        return errno == ELOOP    ? "a symbolic link leads to it"
               : errno == ENOENT ? "it is not there (any more, or on this machine)"
                                 : "it cannot be opened";
    }

    const char *why = read_opened(fd, before_unix_ns, text);

    (void)close(fd);
    return why;
}

/* ---- lines of the file ---- */

static void add_line(struct ms_json *json, const char *line, size_t bytes)
{
    static const char hidden[] = "# (left out: it looks like a secret)";

    bytes -= bytes > 0 && line[bytes - 1] == '\r';
    if (is_secret_line(line, bytes)) {
        ms_json_text(json, NULL, hidden);
    } else {
        ms_json_part(json, NULL, line, bytes < LINE_BYTES ? bytes : LINE_BYTES);
    }
}

/* False: the file has no such line. */
static bool add_lines(struct ms_json *json, const struct ms_buffer *text, uint32_t wanted)
{
    const uint32_t first = wanted > AROUND ? wanted - AROUND : 1;
    const char *at = text->at, *end = text->at + text->bytes;
    uint32_t number = 1;
    bool open = false;

    for (; at < end && number <= wanted + AROUND; number++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        const size_t bytes = (size_t)((line_end ? line_end : end) - at);

        if (number >= first) {
            if (!open) {
                ms_json_count(json, "first", first);
                ms_json_open(json, "lines", '[');
                open = true;
            }
            add_line(json, at, bytes);
        }
        at += bytes + 1;
    }
    if (open) {
        ms_json_close(json, ']');
    }
    return open && number > wanted;
}

void ms_source_json(struct ms_json *json, const struct ms_frame *frame, uint64_t before_unix_ns)
{
    struct ms_buffer text = {0};
    const char *why = read_source(frame->file, before_unix_ns, &text);

    ms_json_open(json, NULL, '{');
    ms_json_text(json, "file", frame->file);
    ms_json_text(json, "function", frame->function);
    ms_json_count(json, "line", frame->line);
    if (!why && !add_lines(json, &text, frame->line)) {
        why = "it has no such line";
    }
    ms_json_text(json, "why", why);
    ms_json_close(json, '}');
    ms_buffer_free(&text);
}
