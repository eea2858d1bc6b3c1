/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing blocks of other processes. */
#include "shim/sharing/imports.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/cancel.h"
#include "allocator/base/ids.h"
#include "allocator/base/locks/lock.h"
#include "shim/device/addresses/reservations.h"
#include "shim/device/operations/fences.h"
#include "shim/driver/driver.h"
#include "shim/process/log.h"
#include "shim/sharing/exports.h"
#include "shim/sharing/link.h"

/* Offsets from the beginning of the reservation. */
struct import_span {
    uint64_t from, to;
};

struct import {
    struct import *next;
    struct ms_share_name name;
    struct ms_context *context;
    struct ms_share_link *link;
    CUdeviceptr_v2 base;        /* of the reservation in which its chunks are mapped */
    struct import_span *mapped; /* by address; one, where the owner has unmapped nothing */
    size_t mapped_count;
    uint64_t reached_bytes; /* up to where it is mapped so far */
    uint64_t whole_bytes;   /* of the reservation; 0: none yet */
    uint64_t offset_bytes;  /* offset of the block from base */
    uint64_t opens, id;
    uint64_t opening; /* number of the last one, among all of the process */
    bool marked;      /* under SHARING */
};

/* Changed under both IMPORTS and SHARING, read under either. */
static struct import *imports;
static _Atomic unsigned import_count;
static uint64_t openings MS_GUARDED_BY(*MS_LOCK(IMPORTS));

static CUdeviceptr_v2 begin_of(const struct import *import)
{
    return import->base + import->offset_bytes;
}

bool ms_imports_know(const CUipcMemHandle_v1 *handle)
{
    struct ms_share_name name;
    memcpy(&name, handle, sizeof name);
    return memcmp(name.magic, MS_SHARE_MAGIC, sizeof name.magic) == 0;
}

static void end(struct import *import)
{
    free(import->mapped);
    free(import);
}

/* --- mapping ---------------------------------------------------------------------------------- */

static CUresult unmap(struct import *import)
{
    CUresult result = CUDA_SUCCESS;
    while (import->mapped_count > 0 && result == CUDA_SUCCESS) {
        const struct import_span *last = &import->mapped[import->mapped_count - 1];
        result = MS_REAL(cuMemUnmap)(import->base + last->from, last->to - last->from);
        import->mapped_count -= result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS && import->whole_bytes != 0) {
        (void)MS_REAL(cuMemAddressFree)(import->base, import->whole_bytes);
        import->whole_bytes = 0;
    }
    return result;
}

/* Room for one more span; false: no host memory. */
static bool need_span(struct import *import)
{
    const size_t count = import->mapped_count + 1;
    struct import_span *more = realloc(import->mapped, count * sizeof *more);
    import->mapped = more ? more : import->mapped;
    return more != NULL;
}

static void note_mapped(struct import *import, uint64_t from, uint64_t bytes)
{
    if (import->mapped_count == 0 || import->mapped[import->mapped_count - 1].to != from) {
        import->mapped[import->mapped_count++] = (struct import_span){from, from};
    }
    import->mapped[import->mapped_count - 1].to = from + bytes;
    import->reached_bytes = from + bytes;
}

/* The mapping keeps the chunk alive, so its handle is released. */
static CUresult map_chunk(struct import *import, int fd, uint64_t at, uint64_t bytes)
{
    CUmemGenericAllocationHandle_v1 chunk = 0;
    if (!need_span(import)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = MS_REAL(cuMemImportFromShareableHandle)(
        &chunk, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = MS_REAL(cuMemMap)(import->base + at, bytes, 0, chunk, 0);
    (void)MS_REAL(cuMemRelease)(chunk);
    if (result == CUDA_SUCCESS) {
        note_mapped(import, at, bytes);
    }
    return result;
}

/* If there are fewer descriptors than the answer says, this process may open no more files. */
static CUresult map_chunks(struct import *import, const struct ms_share_answer *answer,
                           const int *fds, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < answer->count && i < MS_SHARE_BATCH && result == CUDA_SUCCESS; i++) {
        const uint64_t at = answer->at_bytes[i];
        const uint64_t bytes = answer->chunk_bytes[i];
        if (bytes == 0 || at < import->reached_bytes || at > import->whole_bytes ||
            bytes > import->whole_bytes - at) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        result = i < count ? map_chunk(import, fds[i], at, bytes) : CUDA_ERROR_OPERATING_SYSTEM;
    }
    return result;
}

/* *from: moves to where the next batch begins. */
static CUresult map_batch(struct import *import, uint64_t *from)
{
    struct ms_share_answer answer;
    int fds[MS_SHARE_BATCH];
    size_t count = 0;
    if (!ms_share_link_ask(import->link, MS_SHARE_CHUNKS, &import->name.block, *from, &answer, fds,
                           &count)) {
        return CUDA_ERROR_MAP_FAILED;
    }
    CUresult result = answer.known && answer.next_bytes > *from
                          ? map_chunks(import, &answer, fds, count)
                          : CUDA_ERROR_MAP_FAILED;
    *from = answer.next_bytes;
    for (size_t i = 0; i < count; i++) {
        (void)close(fds[i]);
    }
    return result;
}

/* Gives access to the device of the opener's context. If the block's own device is one of this
 * process's, also to that device and to those that may access its memory. */
static CUresult give_access(const struct import *import)
{
    CUmemAccessDesc_v1 list[MS_DEVICES_MAX];
    struct ms_access access = {.read_write = 1ULL << import->context->device->ordinal};
    for (int d = 0; d < MS_DEVICES_MAX; d++) {
        const struct ms_device *device = ms_device_get(d);
        if (device && memcmp(device->uuid, import->name.uuid, sizeof device->uuid) == 0) {
            access.read_write |= atomic_load(&device->access_mask) | 1ULL << d;
        }
    }
    const size_t count = ms_access_list(&access, list);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < import->mapped_count && result == CUDA_SUCCESS; i++) {
        const struct import_span *span = &import->mapped[i];
        result =
            MS_REAL(cuMemSetAccess)(import->base + span->from, span->to - span->from, list, count);
    }
    return result;
}

static CUresult map_all(struct import *import)
{
    CUdeviceptr_v2 base = 0;
    uint64_t from = 0;
    CUresult result = MS_REAL(cuMemAddressReserve)(&base, import->whole_bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        import->whole_bytes = 0;
        return result;
    }
    import->base = base;
    while (from < import->whole_bytes && result == CUDA_SUCCESS) {
        result = map_batch(import, &from);
    }
    return result == CUDA_SUCCESS ? give_access(import) : result;
}

/* --- open ------------------------------------------------------------------------------------- */

static struct import **place_of(const struct ms_share_key *block, const struct ms_context *context)
{
    struct import **at = &imports;
    while (*at && ((*at)->context != context || !ms_share_key_equal(&(*at)->name.block, block))) {
        at = &(*at)->next;
    }
    return at;
}

/* If the block is gone, the handle is invalid. If its owner is gone or silent, there is nothing to
 * map. */
static CUresult ask_and_map(struct import *import)
{
    struct ms_share_answer answer;
    int fds[MS_SHARE_BATCH];
    size_t count = 0;
    if (!ms_share_link_ask(import->link, MS_SHARE_OPEN, &import->name.block, 0, &answer, fds,
                           &count)) {
        /* Its answer may still come. */
        ms_share_link_close_block(import->link, &import->name.block);
        return CUDA_ERROR_MAP_FAILED;
    }
    if (!answer.known) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    import->whole_bytes = answer.whole_bytes;
    import->offset_bytes = answer.offset_bytes;
    CUresult result = map_all(import);
    if (result != CUDA_SUCCESS) {
        (void)unmap(import);
        ms_share_link_close_block(import->link, &import->name.block);
    }
    return result;
}

static CUresult open_new(struct ms_context *context, const struct ms_share_name *name,
                         struct import **out)
{
    struct import *import = calloc(1, sizeof *import);
    if (!import) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    import->name = *name;
    import->context = context;
    import->link = ms_share_link_use(&name->process);
    CUresult result = import->link ? ask_and_map(import) : CUDA_ERROR_MAP_FAILED;
    if (!import->link) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "cuIpcOpenMemHandle failed: the process that owns the memory does not answer. "
                    "It has ended, or it runs in another container: those have to share their "
                    "network or /dev/shm, and the user");
    }
    if (result != CUDA_SUCCESS) {
        if (import->link) {
            ms_share_link_leave(import->link);
        }
        end(import);
        return result;
    }
    import->id = ms_ids_take(1);
    ms_context_hold(context);
    ms_lock_acquire(MS_LOCK(SHARING));
    import->next = imports;
    imports = import;
    atomic_fetch_add(&import_count, 1);
    ms_lock_release(MS_LOCK(SHARING));
    *out = import;
    return CUDA_SUCCESS;
}

CUresult ms_imports_open(struct ms_context *context, const CUipcMemHandle_v1 *handle,
                         CUdeviceptr_v2 *out)
{
    struct ms_share_name name;
    CUresult result = CUDA_SUCCESS;
    memcpy(&name, handle, sizeof name);
    if (ms_exports_own(handle)) {
        return CUDA_ERROR_INVALID_CONTEXT; /* as for the driver's own handles */
    }
    const int cancellation = ms_cancel_hold();
    ms_lock_acquire(MS_LOCK(IMPORTS));
    struct import *import = *place_of(&name.block, context);
    if (!import) {
        result = open_new(context, &name, &import);
    }
    if (result == CUDA_SUCCESS) {
        import->opens++;
        import->opening = ++openings;
        *out = begin_of(import);
    }
    ms_lock_release(MS_LOCK(IMPORTS));
    ms_cancel_let(cancellation);
    return result;
}

/* --- close ------------------------------------------------------------------------------------ */

static void unlink_and_end(struct import **at)
{
    struct import *import = *at;
    ms_lock_acquire(MS_LOCK(SHARING));
    *at = import->next;
    atomic_fetch_sub(&import_count, 1);
    ms_lock_release(MS_LOCK(SHARING));
    ms_share_link_close_block(import->link, &import->name.block);
    ms_share_link_leave(import->link);
    ms_context_let(import->context);
    end(import);
}

static struct import **opened_at(CUdeviceptr_v2 addr)
{
    struct import **at = &imports;
    while (*at && begin_of(*at) != addr) {
        at = &(*at)->next;
    }
    return at;
}

/* Nothing may be unmapped while work uses it. That is waited for without the lock, because the work
 * may wait for what another thread opens. Where the block was opened again meanwhile, there may be
 * newer work. */
static struct import **await_work(CUdeviceptr_v2 addr, CUresult *result)
    MS_REQUIRES(*MS_LOCK(IMPORTS))
{
    struct import **at = opened_at(addr);
    uint64_t waited = 0;
    *result = CUDA_SUCCESS;
    while (*result == CUDA_SUCCESS && *at && (*at)->opens == 1 && (*at)->opening != waited) {
        const struct ms_device *device = (*at)->context->device;
        waited = (*at)->opening;
        ms_lock_release(MS_LOCK(IMPORTS));
        *result = ms_fences_wait_for_work(device);
        ms_lock_acquire(MS_LOCK(IMPORTS));
        at = opened_at(addr);
    }
    return at;
}

static CUresult close_once(struct import **at)
{
    if (--(*at)->opens > 0) {
        return CUDA_SUCCESS;
    }
    const CUresult result = unmap(*at);
    if (result == CUDA_SUCCESS) {
        unlink_and_end(at);
    } else {
        (*at)->opens++;
    }
    return result;
}

bool ms_imports_close(CUdeviceptr_v2 addr, CUresult *result)
{
    if (atomic_load(&import_count) == 0) {
        return false;
    }
    const int cancellation = ms_cancel_hold();
    ms_lock_acquire(MS_LOCK(IMPORTS));
    struct import **at = await_work(addr, result);
    const bool found = *at != NULL;
    if (found && *result == CUDA_SUCCESS) {
        *result = close_once(at);
    }
    ms_lock_release(MS_LOCK(IMPORTS));
    ms_cancel_let(cancellation);
    return found;
}

void ms_imports_forget(const struct ms_context *context)
{
    if (atomic_load(&import_count) == 0) {
        return;
    }
    const int cancellation = ms_cancel_hold();
    ms_lock_acquire(MS_LOCK(IMPORTS));
    struct import **at = &imports;
    while (*at) {
        if ((*at)->context != context) {
            at = &(*at)->next;
            continue;
        }
        (void)unmap(*at); /* if the driver keeps it mapped, it is lost */
        unlink_and_end(at);
    }
    ms_lock_release(MS_LOCK(IMPORTS));
    ms_cancel_let(cancellation);
}

/* --- questions -------------------------------------------------------------------------------- */

/* The caller holds SHARING. */
static struct import *import_around(CUdeviceptr_v2 addr)
{
    struct import *import = imports;
    while (import && (addr < begin_of(import) || addr - begin_of(import) >= import->name.bytes)) {
        import = import->next;
    }
    return import;
}

bool ms_imports_at(CUdeviceptr_v2 addr, struct ms_import_view *out)
{
    if (atomic_load_explicit(&import_count, memory_order_relaxed) == 0) {
        return false;
    }
    ms_lock_acquire(MS_LOCK(SHARING));
    const struct import *import = import_around(addr);
    if (import) {
        *out = (struct ms_import_view){.addr = begin_of(import),
                                       .bytes = import->name.bytes,
                                       .id = import->id,
                                       .context = import->context,
                                       .marked = import->marked};
    }
    ms_lock_release(MS_LOCK(SHARING));
    return import != NULL;
}

bool ms_imports_mark(CUdeviceptr_v2 addr, bool marked)
{
    if (atomic_load_explicit(&import_count, memory_order_relaxed) == 0) {
        return false;
    }
    ms_lock_acquire(MS_LOCK(SHARING));
    struct import *import = import_around(addr);
    if (import) {
        import->marked = marked;
    }
    ms_lock_release(MS_LOCK(SHARING));
    return import != NULL;
}
