/* SPDX-License-Identifier: Apache-2.0 */
/* The shared file in which the ranks of a communicator meet. */
#include "nccl_double.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_NANOSECONDS = 20 * 1000 * 1000, SPINS_BEFORE_SLEEP = 200 };

static const size_t head_bytes = (sizeof(simnccl_head_t) + 4095) / 4096 * 4096;

/* In the folder of the simulated GPU's own shared file, which scripts/simgpu.sh removes at the
 * end. */
static void region_path(char *path, size_t path_bytes, const char *name)
{
    const char *shared = getenv("SIMGPU_SHARED");
    const char *slash = shared ? strrchr(shared, '/') : NULL;
    if (slash) {
        snprintf(path, path_bytes, "%.*s/nccl-%s", (int)(slash - shared), shared, name);
    } else {
        snprintf(path, path_bytes, "%s/simgpu-nccl-%s",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", name);
    }
}

ncclResult_t simnccl_region_attach(simnccl_region_t *region, const char *name, int nranks)
{
    region_path(region->path, sizeof(region->path), name);
    region->bytes = head_bytes + (size_t)nranks * SIMNCCL_SLOT_BYTES +
                    (size_t)nranks * (size_t)nranks * SIMNCCL_MAIL_BYTES;
    int fd = open(region->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return ncclSystemError;
    }
    void *at = MAP_FAILED;
    if (ftruncate(fd, (off_t)region->bytes) == 0) {
        at = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (at == MAP_FAILED) {
        return ncclSystemError;
    }
    simnccl_head_t *head = at;
    uint32_t expected = 0;
    if (!atomic_compare_exchange_strong(&head->nranks, &expected, (uint32_t)nranks) &&
        expected != (uint32_t)nranks) {
        munmap(at, region->bytes);
        return ncclInvalidArgument;
    }
    region->head = head;
    if (atomic_fetch_add(&head->attached, 1) + 1 == (uint32_t)nranks) {
        unlink(region->path);
        simnccl_wake_word(&head->attached);
    }
    return ncclSuccess;
}

ncclResult_t simnccl_region_wait_all(simnccl_region_t *region, int nranks)
{
    for (;;) {
        uint32_t attached = atomic_load(&region->head->attached);
        if (attached >= (uint32_t)nranks) {
            return ncclSuccess;
        }
        simnccl_wait_word(&region->head->attached, attached);
    }
}

void simnccl_region_detach(simnccl_region_t *region)
{
    if (region->head) {
        munmap(region->head, region->bytes);
        region->head = NULL;
    }
}

char *simnccl_region_slot(const simnccl_region_t *region, int rank)
{
    return (char *)region->head + head_bytes + (size_t)rank * SIMNCCL_SLOT_BYTES;
}

char *simnccl_region_mailbox(const simnccl_region_t *region, int nranks, int from, int to)
{
    return simnccl_region_slot(region, nranks) +
           ((size_t)from * (size_t)nranks + (size_t)to) * SIMNCCL_MAIL_BYTES;
}

void simnccl_wait_word(const _Atomic uint32_t *word, uint32_t seen)
{
    /* With a limit: if the other ranks are gone, only this rank's abort flag changes. */
    struct timespec limit = {.tv_nsec = WAIT_NANOSECONDS};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

void simnccl_wake_word(const _Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

bool simnccl_barrier(simnccl_barrier_t *barrier, int nranks, const _Atomic uint32_t *aborted)
{
    uint32_t generation = atomic_load(&barrier->generation);
    if (atomic_fetch_add(&barrier->arrived, 1) + 1 == (uint32_t)nranks) {
        atomic_store(&barrier->arrived, 0);
        atomic_fetch_add(&barrier->generation, 1);
        simnccl_wake_word(&barrier->generation);
        return true;
    }
    for (int spin = 0; atomic_load(&barrier->generation) == generation; spin++) {
        if (atomic_load(aborted)) {
            return false;
        }
        if (spin >= SPINS_BEFORE_SLEEP) {
            simnccl_wait_word(&barrier->generation, generation);
        }
    }
    return true;
}
