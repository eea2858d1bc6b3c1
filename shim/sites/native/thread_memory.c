/* SPDX-License-Identifier: Apache-2.0 */
/* Gives each thread a piece of memory, and reuses those of threads that ended. */
#include "shim/sites/native/thread_memory.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/base/containers/pages.h"

static bool take_from_dead(struct ms_thread_memory *memory, uint64_t self)
{
    uint64_t before = atomic_load(&memory->owner);
    uint32_t tid = (uint32_t)before;
    bool dead =
        tid == self || (syscall(SYS_tgkill, getpid(), (pid_t)tid, 0) == -1 && errno == ESRCH);
    uint64_t after = ((before >> 32) + 1) << 32 | self;
    /* If another thread also found it dead, or got the dead thread's id, the owner has changed by
     * now. */
    return dead && atomic_compare_exchange_strong(&memory->owner, &before, after);
}

static struct ms_thread_memory *map(ms_thread_memories_t *all, size_t bytes, uint64_t self)
{
    struct ms_thread_memory *memory = ms_pages_map(bytes);
    if (memory != NULL) {
        atomic_store(&memory->owner, self);
        memory->next = atomic_load(all);
        while (!atomic_compare_exchange_weak(all, &memory->next, memory)) {
        }
    }
    return memory;
}

void *ms_thread_memory_claim(ms_thread_memories_t *all, size_t bytes)
{
    const int saved = errno;
    const uint64_t self = (uint64_t)syscall(SYS_gettid);
    struct ms_thread_memory *memory = atomic_load(all);
    while (memory != NULL && !take_from_dead(memory, self)) {
        memory = memory->next;
    }
    if (memory == NULL) {
        memory = map(all, bytes, self);
    }
    errno = saved;
    return memory;
}
