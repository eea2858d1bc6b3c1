/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks as file descriptors. See shareable.h. */
#include "shareable.h"

#include "context.h"
#include "device.h"
#include "entry.h"
#include "memory.h"
#include "multicast.h"
#include "vmm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Labels lie after all chunks of the file: one for each granule at which a chunk may begin. */
#define LABEL_SPACE_START (1ull << 50)
#define LABEL_BYTES       256ull
#define LABEL_MAGIC       0x53494d4c4142454cull

struct label {
    uint64_t magic;
    uint64_t offset, bytes; /* of the chunk, in the file */
    int32_t device;         /* -1: the host */
    CUmemAllocationProp properties;
};

static off_t label_position(uint64_t offset)
{
    return (off_t)(LABEL_SPACE_START + offset / SIM_GRANULE_BYTES * LABEL_BYTES);
}

/* A process has one descriptor of each file from which it imported chunks, however many. (The real
 * driver keeps none.) */
struct file {
    struct file *next;
    dev_t device;
    ino_t inode;
    int fd;
    uint64_t chunks;
};

static struct file *files;

/* -1: no descriptor, or no memory. */
static int file_use(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return -1;
    }
    struct file *file = files;
    while (file && (file->device != status.st_dev || file->inode != status.st_ino)) {
        file = file->next;
    }
    if (!file) {
        file = malloc(sizeof *file);
        int own = file ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
        if (own < 0) {
            free(file);
            return -1;
        }
        *file = (struct file){files, status.st_dev, status.st_ino, own, 0};
        files = file;
    }
    file->chunks++;
    return file->fd;
}

static void file_leave(int fd)
{
    struct file **at = &files;
    while (*at && (*at)->fd != fd) {
        at = &(*at)->next;
    }
    struct file *file = *at;
    if (file && --file->chunks == 0) {
        *at = file->next;
        close(file->fd);
        free(file);
    }
}

/* Each export opens a file description of its own, because each needs its own position. */
int sim_shareable_export(const struct sim_chunk *chunk)
{
    struct label label = {.magic = LABEL_MAGIC,
                          .offset = chunk->offset,
                          .bytes = chunk->bytes,
                          .device = chunk->device ? chunk->device->index : -1,
                          .properties = chunk->properties};
    _Static_assert(sizeof label <= LABEL_BYTES, "a label fits its place");
    if (chunk->team) {
        return sim_team_export(chunk->team);
    }
    int source = chunk->imported_fd >= 0 ? chunk->imported_fd : chunk->backing->fd;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", source);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    off_t position = label_position(chunk->offset);
    if (pwrite(fd, &label, sizeof label, position) != sizeof label ||
        lseek(fd, position, SEEK_SET) != position) {
        close(fd);
        return -1;
    }
    return fd;
}

CUresult sim_shareable_import(struct sim_chunk *chunk, int fd)
{
    struct label label;
    off_t position = lseek(fd, 0, SEEK_CUR);
    if (position < 0 && errno == EBADF) {
        return CUDA_ERROR_UNKNOWN; /* not a valid descriptor (seen: an H200, driver 580) */
    }
    if (position == 0) {
        chunk->imported_fd = -1;
        chunk->team = sim_team_import(fd, &chunk->properties, &chunk->bytes);
        return chunk->team ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (position < (off_t)LABEL_SPACE_START ||
        pread(fd, &label, sizeof label, position) != sizeof label || label.magic != LABEL_MAGIC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    chunk->imported_fd = file_use(fd);
    if (chunk->imported_fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    chunk->bytes = label.bytes;
    chunk->offset = label.offset;
    chunk->properties = label.properties;
    chunk->device = label.device >= 0 ? sim_device_of(label.device) : NULL;
    return CUDA_SUCCESS;
}

/* A chunk that was ever exported is kept until its process ends, because nobody knows where its
 * descriptors went. Its place is never reused, so it costs only what it holds. */
bool sim_shareable_is_shared(const struct sim_chunk *chunk)
{
    return chunk->exported;
}

void sim_shareable_close(struct sim_chunk *chunk)
{
    file_leave(chunk->imported_fd);
}

/* ---- the export functions of the driver API ------------------------------------------------- */

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags)
{
    SIM_ENTER(cuMemExportToShareableHandle);
    struct sim_chunk *chunk = sim_chunk_of(handle);
    if (!shareableHandle || !chunk || flags ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* "must have been created with the same handle type requested"; host memory cannot be
     * exported. */
    if (!((unsigned)chunk->properties.requestedHandleTypes & (unsigned)handleType)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (chunk->properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    int fd = sim_shareable_export(chunk);
    if (fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    chunk->exported = true;
    *(int *)shareableHandle = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType)
{
    SIM_ENTER(cuMemImportFromShareableHandle);
    if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_chunk *chunk = sim_object_new(&sim_chunks);
    if (!chunk) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult status = sim_shareable_import(chunk, (int)(intptr_t)osHandle);
    if (status != CUDA_SUCCESS) {
        sim_object_free(&sim_chunks, chunk);
        return status;
    }
    chunk->handles = 1;
    *handle = sim_chunk_handle(chunk);
    return CUDA_SUCCESS;
}

/* Which ranges have a DMA-BUF, as on an H200 (driver 580): mapped memory, except unmapped parts;
 * every part of cuMemAlloc's memory; whole granules of a pool; no managed memory. */
static bool has_dma_buf(CUdeviceptr at, size_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const struct sim_range *range = sim_range_at(at);
    if (bytes == 0 || at % page || bytes % page) {
        return false;
    }
    if (!range) {
        return sim_is_mapped(at, bytes);
    }
    const uint64_t offset = at - (CUdeviceptr)range->address;
    const bool whole = offset % SIM_GRANULE_BYTES == 0 && bytes % SIM_GRANULE_BYTES == 0;
    return (range->kind == SIM_RANGE_DEVICE || (range->kind == SIM_RANGE_POOL && whole)) &&
           offset + bytes <= range->bytes;
}

/* The descriptor stands for memory that no process maps through it. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                       CUmemRangeHandleType handleType, unsigned long long flags)
{
    SIM_JUDGE(handle && dptr, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuMemGetHandleForAddressRange);
    SIM_CURRENT(context);
    (void)context;
    if (handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_settings.dma_buf) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!has_dma_buf(dptr, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int fd = memfd_create("simgpu-dma-buf", MFD_CLOEXEC);
    if (fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)handle = fd;
    return CUDA_SUCCESS;
}
