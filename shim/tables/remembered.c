/* SPDX-License-Identifier: Apache-2.0 */
/* Files with the answers of probes, in a folder of the user's, with locks between processes. */
#include "shim/tables/remembered.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/cancel.h"
#include "allocator/base/own_folder.h"
#include "allocator/base/path.h"
#include "shim/tables/identity.h"

#define POLL_MS      2
#define RECORD_BYTES 64
#define LOCK_END     ".lock"
#define NEW_END      ".new"

static const char *const kinds[] = {"host-", "mapping-"};

/* --- the folder ------------------------------------------------------------------------------- */

/* A missing home folder is not made: a service's account may name one that never existed, and root
 * could make it. */
static bool find_folder(struct ms_remembered *remembered, char *const *environment, bool make)
{
    const char *cache = ms_environment(environment, "XDG_CACHE_HOME");
    const char *home = ms_environment(environment, "HOME");
    int length = -1;
    if (cache && cache[0] == '/') {
        length = snprintf(remembered->path, sizeof(remembered->path), "%s/memshim", cache);
    } else if (home && home[0] == '/') {
        length = snprintf(remembered->path, sizeof(remembered->path), "%s/.cache", home);
        if (make && length < (int)sizeof(remembered->path)) {
            (void)mkdir(remembered->path, S_IRWXU);
        }
        length = snprintf(remembered->path, sizeof(remembered->path), "%s/.cache/memshim", home);
    }
    return length >= 0 && length < (int)sizeof(remembered->path);
}

static void refuse(struct ms_remembered *remembered, enum ms_remembered_state state,
                   const char *trouble)
{
    remembered->state = state;
    remembered->trouble = trouble;
    if (remembered->folder >= 0) {
        (void)close(remembered->folder);
        remembered->folder = -1;
    }
}

void ms_remembered_open(struct ms_remembered *remembered, char *const *environment, bool make)
{
    remembered->folder = remembered->lock = -1;
    remembered->state = MS_REMEMBERED_NOWHERE;
    remembered->trouble = NULL;
    if (!find_folder(remembered, environment, make)) {
        return;
    }
    if (make && mkdir(remembered->path, S_IRWXU) != 0 && errno != EEXIST && errno != ENOENT) {
        refuse(remembered, MS_REMEMBERED_UNUSABLE, "it cannot be made");
        return;
    }
    remembered->folder = open(remembered->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (remembered->folder >= 0) {
        remembered->state = MS_REMEMBERED_OPEN;
        const char *trouble = ms_own_folder_trouble(remembered->folder);
        if (trouble) {
            refuse(remembered, MS_REMEMBERED_UNSAFE, trouble);
        }
    } else if (errno == ELOOP || errno == ENOTDIR) {
        refuse(remembered, MS_REMEMBERED_UNSAFE, "it is a symbolic link, or no folder");
    } else if (errno != ENOENT) {
        refuse(remembered, MS_REMEMBERED_UNUSABLE, "it cannot be opened");
    }
}

void ms_remembered_close(struct ms_remembered *remembered)
{
    if (remembered->lock >= 0) {
        (void)flock(remembered->lock, LOCK_UN); /* a child of a fork meanwhile has the file open */
        (void)close(remembered->lock);
    }
    if (remembered->folder >= 0) {
        (void)close(remembered->folder);
    }
    remembered->folder = remembered->lock = -1;
}

/* --- keys and locks --------------------------------------------------------------------------- */

void ms_remembered_key(char *key)
{
    for (char *at = key; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && *at != '.' && *at != '-') {
            *at = '_';
        }
    }
}

static bool is_ours(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (strncmp(name, kinds[i], strlen(kinds[i])) == 0) {
            return true;
        }
    }
    return false;
}

bool ms_remembered_is_key(const char *name)
{
    return is_ours(name) && !ms_name_ends_with(name, LOCK_END) && !ms_name_ends_with(name, NEW_END);
}

/* With a limit: a network file system may have locks that are never granted. */
bool ms_remembered_lock(struct ms_remembered *remembered, const char *key, int wait_ms)
{
    char name[MS_REMEMBERED_KEY_BYTES + sizeof(LOCK_END)];
    (void)snprintf(name, sizeof(name), "%s" LOCK_END, key);
    int lock = openat(remembered->folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                      S_IRUSR | S_IWUSR);
    for (int ms = 0; lock >= 0; ms += POLL_MS) {
        if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
            remembered->lock = lock;
            return true;
        }
        if ((errno != EWOULDBLOCK && errno != EINTR) || ms >= wait_ms) {
            (void)close(lock);
            return false;
        }
        ms_nap(POLL_MS * UINT64_C(1000000));
    }
    return false;
}

/* --- answers ---------------------------------------------------------------------------------- */

static int print(const struct ms_remembered_answer *answer, char *text)
{
    return snprintf(text, RECORD_BYTES, "memshim-probe 1 %d %" PRId64 "\n", answer->code,
                    answer->when_ns);
}

/* Accepts exactly the written form, nothing else. */
static bool parse(const char *text, size_t bytes, struct ms_remembered_answer *out)
{
    char again[RECORD_BYTES];
    return sscanf(text, "memshim-probe 1 %d %" SCNd64, &out->code, &out->when_ns) == 2 &&
           print(out, again) == (int)bytes && memcmp(again, text, bytes) == 0;
}

bool ms_remembered_read(const struct ms_remembered *remembered, const char *key,
                        struct ms_remembered_answer *out, const char **trouble)
{
    char text[RECORD_BYTES + 1];
    struct stat about;
    *trouble = NULL;
    int file =
        openat(remembered->folder, key, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0) {
        *trouble = errno == ENOENT ? NULL : errno == ELOOP ? "a symbolic link" : "unreadable";
        return false;
    }
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
        *trouble = "no plain file";
    } else if (about.st_uid != geteuid()) {
        *trouble = "another user's";
    } else {
        ssize_t bytes = read(file, text, RECORD_BYTES);
        text[bytes > 0 ? bytes : 0] = '\0';
        *trouble = bytes > 0 && parse(text, (size_t)bytes, out) ? NULL : "damaged";
    }
    (void)close(file);
    return *trouble == NULL;
}

bool ms_remembered_write(const struct ms_remembered *remembered, const char *key,
                         const struct ms_remembered_answer *answer)
{
    char name[MS_REMEMBERED_KEY_BYTES + sizeof(NEW_END) + 16];
    char text[RECORD_BYTES];
    int bytes = print(answer, text);
    (void)snprintf(name, sizeof(name), "%s.%ld" NEW_END, key, (long)getpid());
    (void)unlinkat(remembered->folder, name, 0); /* left by a process that died with this pid */
    int file = openat(remembered->folder, name,
                      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (file < 0) {
        return false;
    }
    bool written = write(file, text, (size_t)bytes) == bytes;
    written = close(file) == 0 && written;
    if (!written || renameat(remembered->folder, name, remembered->folder, key) != 0) {
        (void)unlinkat(remembered->folder, name, 0);
        return false;
    }
    return true;
}

void ms_remembered_forget(const struct ms_remembered *remembered, const char *key)
{
    (void)unlinkat(remembered->folder, key, 0);
}

unsigned ms_remembered_forget_all(const struct ms_remembered *remembered)
{
    unsigned answers = 0;
    int folder = openat(remembered->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = folder >= 0 ? fdopendir(folder) : NULL;
    for (struct dirent *entry = list ? readdir(list) : NULL; entry; entry = readdir(list)) {
        if (is_ours(entry->d_name) && unlinkat(remembered->folder, entry->d_name, 0) == 0) {
            answers += ms_remembered_is_key(entry->d_name);
        }
    }
    if (list) {
        (void)closedir(list);
    } else if (folder >= 0) {
        (void)close(folder);
    }
    return answers;
}
