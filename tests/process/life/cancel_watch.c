/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded after memshim: says where pthread_cancel could end a thread inside it. That is each
 * call of memshim's of a function at which threads are cancelled, on a thread of the program's that
 * may be cancelled just then. Threads of memshim's own are in nobody's hands. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uintptr_t begin, end;
static _Thread_local bool ours;

static int find(struct dl_phdr_info *info, size_t bytes, void *ctx)
{
    (void)bytes;
    (void)ctx;
    if (strstr(info->dlpi_name, "memshim.so") != NULL) {
        begin = info->dlpi_addr;
        for (int i = 0; i < info->dlpi_phnum; i++) {
            const ElfW(Phdr) *part = &info->dlpi_phdr[i];
            const uintptr_t part_end = begin + part->p_vaddr + part->p_memsz;
            end = part->p_type == PT_LOAD && part_end > end ? part_end : end;
        }
    }
    return 0;
}

static bool of_memshim(const void *caller)
{
    if (begin == 0) {
        (void)dl_iterate_phdr(find, NULL);
    }
    return (uintptr_t)caller - begin < end - begin;
}

static void look(const char *name, const void *caller)
{
    int state = 0;
    if (ours || !of_memshim(caller)) {
        return;
    }
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (state == PTHREAD_CANCEL_ENABLE) {
        (void)dprintf(STDERR_FILENO, "a thread may be cancelled in %s, at %#lx\n", name,
                      (unsigned long)((uintptr_t)caller - begin));
    }
    (void)pthread_setcancelstate(state, NULL);
}

/* Looks, then calls the C library's. */
#define WATCHED(type, name, params, args)                   \
    __attribute__((visibility("default"))) type name params \
    {                                                       \
        static __typeof__(name) *real;                      \
        if (real == NULL) {                                 \
            *(void **)&real = dlsym(RTLD_NEXT, #name);      \
        }                                                   \
        look(#name, __builtin_return_address(0));           \
        return real args;                                   \
    }

WATCHED(int, accept4, (int fd, struct sockaddr *at, socklen_t *bytes, int flags),
        (fd, at, bytes, flags))
WATCHED(int, close, (int fd), (fd))
WATCHED(int, connect, (int fd, const struct sockaddr *at, socklen_t bytes), (fd, at, bytes))
WATCHED(int, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes))
WATCHED(int, fclose, (FILE * file), (file))
WATCHED(char *, fgets, (char *line, int bytes, FILE *file), (line, bytes, file))
WATCHED(FILE *, fopen, (const char *path, const char *mode), (path, mode))
WATCHED(ssize_t, getrandom, (void *at, size_t bytes, unsigned flags), (at, bytes, flags))
WATCHED(int, nanosleep, (const struct timespec *span, struct timespec *left), (span, left))
WATCHED(int, poll, (struct pollfd * of, nfds_t count, int ms), (of, count, ms))
WATCHED(int, posix_fallocate, (int fd, off_t at, off_t bytes), (fd, at, bytes))
WATCHED(ssize_t, pread, (int fd, void *to, size_t bytes, off_t at), (fd, to, bytes, at))
WATCHED(ssize_t, pwrite, (int fd, const void *from, size_t bytes, off_t at), (fd, from, bytes, at))
WATCHED(ssize_t, read, (int fd, void *to, size_t bytes), (fd, to, bytes))
WATCHED(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
WATCHED(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WATCHED(int, sigtimedwait, (const sigset_t *set, siginfo_t *info, const struct timespec *span),
        (set, info, span))
WATCHED(pid_t, waitpid, (pid_t pid, int *status, int options), (pid, status, options))
WATCHED(ssize_t, write, (int fd, const void *from, size_t bytes), (fd, from, bytes))

/* ---- functions of several forms */

__attribute__((visibility("default"))) int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    va_list list;
    va_start(list, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "open");
    }
    look("open", __builtin_return_address(0));
    return real(path, flags, mode);
}

__attribute__((visibility("default"))) int openat(int folder, const char *path, int flags, ...)
{
    static int (*real)(int, const char *, int, ...);
    va_list list;
    va_start(list, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "openat");
    }
    look("openat", __builtin_return_address(0));
    return real(folder, path, flags, mode);
}

/* ---- threads */

struct work {
    void *(*run)(void *);
    void *ctx;
};

static void *run_ours(void *ctx)
{
    const struct work work = *(struct work *)ctx;
    free(ctx);
    ours = true;
    return work.run(work.ctx);
}

__attribute__((visibility("default"))) int
pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *ctx)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    }
    struct work *work =
        of_memshim(__builtin_return_address(0)) ? malloc(sizeof(struct work)) : NULL;
    if (work == NULL) {
        return real(thread, attributes, run, ctx);
    }
    *work = (struct work){run, ctx};
    return real(thread, attributes, run_ours, work);
}
