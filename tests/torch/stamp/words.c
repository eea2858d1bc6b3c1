/* SPDX-License-Identifier: Apache-2.0 */
/* The stamped words of tensors, as the device sees them. See words.h. */
#include "words.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define WORD_BYTES       8u
#define PROBE_STEP_BYTES (2u << 20) /* the granule: the smallest chunk there is */
#define PROBES           64
#define NUMBER_SHIFT     40

struct stamp_counts stamp_counts;
static uint64_t step_bytes = 4096;

/* The tensors that are present, by address; they do not overlap. Under lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stamp_tensor **present;
static size_t present_count, present_capacity;

void stamp_fail(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started above */
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "stamp: %s\n", text);
    _exit(STAMP_STATUS);
}

void stamp_words_step(uint64_t bytes)
{
    step_bytes = bytes;
}

/* --- Words -------------------------------------------------------------------------------------
 */

static uint64_t word_count(const struct stamp_tensor *tensor)
{
    return tensor->bytes < WORD_BYTES
               ? 0
               : (tensor->bytes - WORD_BYTES + step_bytes - 1) / step_bytes + 1;
}

static uint64_t word_offset(const struct stamp_tensor *tensor, uint64_t index)
{
    uint64_t offset = index * step_bytes, last = tensor->bytes - WORD_BYTES;
    return offset < last ? offset : last;
}

static uint64_t word_value(const struct stamp_tensor *tensor, uint64_t offset)
{
    uint64_t place = (tensor->addr + offset) / WORD_BYTES;
    return tensor->number << NUMBER_SHIFT | (place & ((1ull << NUMBER_SHIFT) - 1));
}

static bool is_overwritten(const struct stamp_tensor *tensor, uint64_t index)
{
    return tensor->overwritten != NULL && (tensor->overwritten[index / 64] >> index % 64 & 1) != 0;
}

static _Noreturn void fail_word(const struct stamp_tensor *tensor, uint64_t offset, uint64_t found)
{
    stamp_fail("WRONG BYTES in tensor %llu (%llu bytes at 0x%llx): at byte %llu stands %016llx "
               "(as a stamp: tensor %llu, address 0x..%010llx), not %016llx",
               (unsigned long long)tensor->number, (unsigned long long)tensor->bytes,
               (unsigned long long)tensor->addr, (unsigned long long)offset,
               (unsigned long long)found, (unsigned long long)(found >> NUMBER_SHIFT),
               (unsigned long long)(found & ((1ull << NUMBER_SHIFT) - 1)) * WORD_BYTES,
               (unsigned long long)word_value(tensor, offset));
}

/* The job may overwrite it meanwhile: it announces that first, so a wrong word is looked up after
 * it was read. */
static void verify(const struct stamp_tensor *tensor, bool locked)
{
    uint64_t count = word_count(tensor), right = 0, overwritten = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t found, offset = word_offset(tensor, i);
        memcpy(&found, (const void *)(uintptr_t)(tensor->addr + offset), sizeof(found));
        if (found == word_value(tensor, offset)) {
            right++;
            continue;
        }
        if (!locked) {
            pthread_mutex_lock(&lock);
        }
        bool excused = is_overwritten(tensor, i);
        if (!locked) {
            pthread_mutex_unlock(&lock);
        }
        if (!excused) {
            fail_word(tensor, offset, found);
        }
        overwritten++;
    }
    atomic_fetch_add(&stamp_counts.words, right);
    atomic_fetch_add(&stamp_counts.overwritten, overwritten);
}

/* --- Who is present ----------------------------------------------------------------------------
 */

/* The first that ends behind addr. With the lock. */
static size_t first_behind(uint64_t addr)
{
    size_t low = 0, high = present_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (present[middle]->addr + present[middle]->bytes <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void take_out(size_t index)
{
    present[index]->state = STAMP_GONE;
    memmove(&present[index], &present[index + 1],
            (present_count - index - 1) * sizeof(struct stamp_tensor *));
    present_count--;
}

static void put_in(struct stamp_tensor *tensor)
{
    size_t index = first_behind(tensor->addr);
    /* A framework that restores an earlier state of its pool reports the same memory again, and
     * not in the order of a stream. */
    while (index < present_count && present[index]->addr < tensor->addr + tensor->bytes) {
        take_out(index);
        atomic_fetch_add(&stamp_counts.forgotten, 1);
    }
    if (present_count == present_capacity) {
        present_capacity = present_capacity * 2 + 64;
        present = realloc(present, present_capacity * sizeof(struct stamp_tensor *));
        if (present == NULL) {
            stamp_fail("out of host memory");
        }
    }
    memmove(&present[index + 1], &present[index],
            (present_count - index) * sizeof(struct stamp_tensor *));
    present[index] = tensor;
    present_count++;
    tensor->state = STAMP_PRESENT;
}

static void release(struct stamp_tensor *tensor)
{
    free(tensor->overwritten);
    free(tensor);
}

void stamp_words_write(struct stamp_tensor *tensor)
{
    pthread_mutex_lock(&lock);
    bool gone = tensor->state == STAMP_GONE;
    if (!gone) {
        put_in(tensor);
    }
    pthread_mutex_unlock(&lock);
    if (gone) {
        release(tensor);
        return;
    }
    uint64_t count = word_count(tensor);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t offset = word_offset(tensor, i), value = word_value(tensor, offset);
        memcpy((void *)(uintptr_t)(tensor->addr + offset), &value, sizeof(value));
    }
}

static void leave(struct stamp_tensor *tensor)
{
    pthread_mutex_lock(&lock);
    if (tensor->state == STAMP_PRESENT) {
        take_out(first_behind(tensor->addr));
    }
    pthread_mutex_unlock(&lock);
}

void stamp_words_end(struct stamp_tensor *tensor)
{
    pthread_mutex_lock(&lock);
    bool is_present = tensor->state == STAMP_PRESENT;
    pthread_mutex_unlock(&lock);
    if (is_present) {
        verify(tensor, false);
        atomic_fetch_add(&stamp_counts.verified, 1);
    }
    leave(tensor);
    release(tensor);
}

void stamp_words_forget(struct stamp_tensor *tensor)
{
    pthread_mutex_lock(&lock);
    bool queued = tensor->state == STAMP_QUEUED;
    tensor->state = queued ? STAMP_GONE : tensor->state;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&stamp_counts.forgotten, 1);
    if (!queued) {
        leave(tensor);
        release(tensor);
    }
}

static void mark_overwritten(struct stamp_tensor *tensor, uint64_t from, uint64_t to)
{
    uint64_t count = word_count(tensor);
    if (tensor->overwritten == NULL) {
        tensor->overwritten = calloc(count / 64 + 1, sizeof(uint64_t));
        if (tensor->overwritten == NULL) {
            stamp_fail("out of host memory");
        }
    }
    for (uint64_t i = from < WORD_BYTES ? 0 : (from - WORD_BYTES) / step_bytes; i < count; i++) {
        uint64_t offset = word_offset(tensor, i);
        if (offset >= to && i + 1 < count) {
            i = count - 2; /* the last word may lie before `to` all the same */
            continue;
        }
        if (offset < to && offset + WORD_BYTES > from) {
            tensor->overwritten[i / 64] |= 1ull << i % 64;
        }
    }
}

void stamp_words_overwritten(uint64_t addr, uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    for (size_t i = first_behind(addr); i < present_count && present[i]->addr < addr + bytes; i++) {
        struct stamp_tensor *tensor = present[i];
        uint64_t from = addr > tensor->addr ? addr - tensor->addr : 0;
        uint64_t to = addr + bytes - tensor->addr;
        mark_overwritten(tensor, from, to < tensor->bytes ? to : tensor->bytes);
    }
    pthread_mutex_unlock(&lock);
}

uint64_t stamp_words_verify_all(void)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < present_count; i++) {
        verify(present[i], true);
    }
    uint64_t count = present_count;
    pthread_mutex_unlock(&lock);
    return count;
}

/* --- Reading without a fault -------------------------------------------------------------------
 */

void stamp_words_probe(uint64_t addr, uint64_t bytes, uint64_t number, const char *when)
{
    char read_bytes[PROBES];
    uint64_t end = addr + bytes - 1;
    for (uint64_t at = addr; at <= end;) {
        struct iovec remote[PROBES];
        size_t count = 0;
        for (; count < PROBES && at <= end; count++) {
            remote[count] = (struct iovec){(void *)(uintptr_t)at, 1};
            at = at < end && at + PROBE_STEP_BYTES > end ? end : at + PROBE_STEP_BYTES;
        }
        struct iovec local = {read_bytes, count};
        ssize_t got = process_vm_readv(getpid(), &local, 1, remote, count, 0);
        if (got < 0 && errno != EFAULT) {
            return; /* the machine does not allow it; the stamps alone must do */
        }
        if (got < (ssize_t)count) {
            stamp_fail(
                "NOT MAPPED: tensor %llu (%llu bytes at 0x%llx), %s, at byte %llu",
                (unsigned long long)number, (unsigned long long)bytes, (unsigned long long)addr,
                when,
                (unsigned long long)((uint64_t)(uintptr_t)remote[got < 0 ? 0 : got].iov_base -
                                     addr));
        }
    }
}
