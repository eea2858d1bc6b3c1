/* SPDX-License-Identifier: Apache-2.0 */
/* Stands before the C library's syscall(), by which PyTorch makes its two calls. All other calls,
 * and those of all other callers, go straight on. */
#include "shim/frameworks/torch_descriptors.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "shim/driver/caller.h"
#include "shim/driver/elf.h"
#include "shim/driver/next_dlsym.h"
#include "shim/frameworks/torch_settings.h"
#include "shim/process/log.h"
#include "shim/process/process.h"
#include "shim/sharing/lent.h"

/* On all machines; headers before Linux 5.6 have no names for them. */
enum { SYS_PIDFD_OPEN = 434, SYS_PIDFD_GETFD = 438 };

typedef long (*syscall_t)(long number, long a, long b, long c, long d, long e, long f);

static _Atomic(syscall_t) next;

/* The process that this thread opened last, and what stands for it. PyTorch opens one, takes all
 * that it needs, and closes it. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
    long fd;
    pid_t process;
} opened = {.fd = -1};

static long make_no_call(long number, long a, long b, long c, long d, long e, long f)
{
    (void)number, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    errno = ENOSYS;
    return -1;
}

/* Read from the C library itself where nothing can be looked up (next_dlsym.c). */
void ms_torch_descriptors_begin(void)
{
    struct ms_loaded_elf elf;
    syscall_t found = (syscall_t)ms_real_dlsym(RTLD_NEXT, "syscall");
    if (found == NULL && ms_elf_of_start("libc.so.6", &elf)) {
        found = (syscall_t)ms_elf_function(&elf, "syscall");
    }
    atomic_store_explicit(&next, found != NULL ? found : make_no_call, memory_order_relaxed);
}

static bool is_missing_or_barred(int error)
{
    return error == EPERM || error == EACCES || error == ENOSYS;
}

/* Where there is no descriptor of a process, one of its folder stands for it. */
static long open_process(pid_t process, long result)
{
    const int error = errno;
    if (result == -1 && is_missing_or_barred(error)) {
        char path[32];
        (void)snprintf(path, sizeof path, "/proc/%d", (int)process);
        result = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        errno = error;
    }
    opened.fd = result;
    opened.process = process;
    return result;
}

static long take(long process_fd, int fd, long result)
{
    const int error = errno;
    if (result != -1 || !is_missing_or_barred(error) || opened.fd != process_fd) {
        return result;
    }
    const int taken = ms_lent_take(opened.process, fd);
    if (taken < 0) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "a tensor of process %d cannot be opened: the system call that takes it "
                    "(pidfd_getfd) is barred here, and that process does not hand it over; set "
                    "PYTORCH_ALLOC_CONF=expandable_segments:False there",
                    (int)opened.process);
    }
    errno = error;
    return taken;
}

static bool is_torchs(const void *caller)
{
    return ms_torch_settings_expandable() && !ms_process_inert() &&
           ms_library_at(caller) == MS_LIBRARY_C10_CUDA;
}

/* Not by its own name, whose prototype has no named arguments. */
long stand_before(long number, long a, long b, long c, long d, long e, long f) __asm__("syscall")
    __attribute__((visibility("default")));

long stand_before(long number, long a, long b, long c, long d, long e, long f)
{
    if (atomic_load_explicit(&next, memory_order_relaxed) == NULL) {
        ms_torch_descriptors_begin(); /* another library's constructor comes first */
    }
    const syscall_t real = atomic_load_explicit(&next, memory_order_relaxed);
    if ((number != SYS_PIDFD_OPEN && number != SYS_PIDFD_GETFD) ||
        !is_torchs(__builtin_return_address(0))) {
        return real(number, a, b, c, d, e, f);
    }
    const long result = real(number, a, b, c, d, e, f);
    return number == SYS_PIDFD_OPEN ? open_process((pid_t)a, result) : take(a, (int)b, result);
}
