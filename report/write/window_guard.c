/* SPDX-License-Identifier: Apache-2.0 */
/* The signal handler that survives a write to a mapping whose file was cut. */
#include "report/write/window_guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "report/trace/format.h"

#define MOST_TRACES 16 /* a process has one; tests have several */

static struct guarded {
    _Atomic(char *) from; /* null: not in use */
    size_t bytes;
    _Atomic int *error;
} guarded[MOST_TRACES];

static struct sigaction before; /* the program's action when the handler was installed */
static bool installed;

/* The fault is in a window: the store is repeated, into memory that nobody can take away. */
static bool put_memory(const siginfo_t *info)
{
    const uintptr_t at = (uintptr_t)info->si_addr;

    for (int i = 0; i < MOST_TRACES && info->si_code > 0; i++) {
        char *from = atomic_load_explicit(&guarded[i].from, memory_order_acquire);

        if (from && at >= (uintptr_t)from && at - (uintptr_t)from < guarded[i].bytes) {
            char *extent = from + (at - (uintptr_t)from) / MS_EXTENT_BYTES * MS_EXTENT_BYTES;

            atomic_store_explicit(guarded[i].error, EIO, memory_order_relaxed);
            return mmap(extent, MS_EXTENT_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
        }
    }
    return false;
}

/* Restores the system's default action: the instruction is repeated and ends the process as it
 * would have without memshim. A signal that was sent is sent again. */
static void leave_to_default(int signal, const siginfo_t *info)
{
    struct sigaction otherwise = {.sa_handler = SIG_DFL};

    (void)sigaction(signal, &otherwise, NULL);
    if (info->si_code <= 0) {
        (void)raise(signal);
    }
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    const int saved = errno;
    const bool fault = info->si_code > 0;

    if (put_memory(info)) {
        errno = saved;
        return;
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler == SIG_DFL || (before.sa_handler == SIG_IGN && fault)) {
        leave_to_default(signal, info);
    } else if (before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
    }
}

static bool is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_fault;
}

static bool install(void)
{
    struct sigaction ours = {.sa_sigaction = on_fault}, now;

    if (sigaction(SIGBUS, NULL, &now) != 0) {
        return false;
    }
    if (is_ours(&now)) {
        return true;
    }
    before = now;
    /* The handler runs with the mask and flags of the program's own, so that the program sees no
     * difference. A handler to be called only once would have to be removed here: then there is no
     * guard. */
    ours.sa_mask = before.sa_mask;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & (SA_NODEFER | SA_RESTART));
    return !(before.sa_flags & (int)SA_RESETHAND) && sigaction(SIGBUS, &ours, NULL) == 0;
}

bool ms_guard_add(char *from, size_t bytes, _Atomic int *error)
{
    for (int i = 0; i < MOST_TRACES; i++) {
        if (!atomic_load_explicit(&guarded[i].from, memory_order_relaxed)) {
            installed = installed || install();
            guarded[i].bytes = bytes;
            guarded[i].error = error;
            atomic_store_explicit(&guarded[i].from, installed ? from : NULL, memory_order_release);
            return installed;
        }
    }
    return false;
}

void ms_guard_remove(const char *from)
{
    struct sigaction now;
    bool others = false;

    for (int i = 0; i < MOST_TRACES; i++) {
        if (atomic_load_explicit(&guarded[i].from, memory_order_relaxed) == from) {
            atomic_store_explicit(&guarded[i].from, NULL, memory_order_release);
        }
        others = others || atomic_load_explicit(&guarded[i].from, memory_order_relaxed);
    }
    if (installed && !others && sigaction(SIGBUS, NULL, &now) == 0 && is_ours(&now)) {
        (void)sigaction(SIGBUS, &before, NULL);
        installed = false;
    }
}

bool ms_guard_stands(void)
{
    struct sigaction now;
    sigset_t blocked;

    return sigaction(SIGBUS, NULL, &now) == 0 && is_ours(&now) &&
           pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && sigismember(&blocked, SIGBUS) == 0;
}
