/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the readable memory around a stack pointer. */
#include "shim/sites/native/native_stack.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Pages may be larger: then each is asked about several times. */
#define PAGE          4096u
#define OWN_MAX_BYTES (UINT64_C(64) << 20) /* how much is asked about at once */
#define REACH_BYTES   (UINT64_C(4) << 20)  /* how far one frame on another stack may reach */

/* Asks by a system call that copies a signal set and only then rejects the operation: EINVAL means
 * that the word could be read. */
bool ms_stack_readable(uint64_t address)
{
    int saved = errno;
    long refused = syscall(SYS_rt_sigprocmask, ~0, address & ~UINT64_C(7), NULL, 8);
    bool readable = refused == -1 && errno == EINVAL;
    errno = saved;
    return readable;
}

static uint64_t page_of(uint64_t address)
{
    return address & ~(uint64_t)(PAGE - 1);
}

/* The first page from begin on that cannot be read; end if all pages before it can. */
static uint64_t first_unreadable(uint64_t begin, uint64_t end)
{
    uint64_t page = begin;
    while (page < end && ms_stack_readable(page)) {
        page += PAGE;
    }
    return page < end ? page : end;
}

/* glibc keeps a thread's control block at the top of its stack, and the kernel keeps the program's
 * name at the top of the main thread's. */
static uint64_t top_of_own(void)
{
    if (syscall(SYS_gettid) != getpid()) {
        return (uint64_t)pthread_self() & ~UINT64_C(7);
    }
    uint64_t name = getauxval(AT_EXECFN);
    return name & ~UINT64_C(7);
}

/* Extends the own stack down to the pointer if everything in between is readable. If not, whatever
 * lies below the gap counts as another stack. */
static bool extend_own(struct ms_own_stack *own, uint64_t pointer)
{
    if (pointer - own->other_begin < own->other_end - own->other_begin) {
        return false;
    }
    const uint64_t known = own->begin != 0 ? own->begin : top_of_own();
    const uint64_t begin = page_of(pointer);
    uint64_t gap = begin + PAGE;
    if (begin < known && known - begin <= OWN_MAX_BYTES) {
        gap = first_unreadable(begin, known);
        if (gap == known) {
            own->end = own->begin != 0 ? own->end : known;
            own->begin = begin;
            return true;
        }
    }
    own->other_begin = begin;
    own->other_end = gap > begin ? gap : begin + PAGE;
    return false;
}

struct ms_stack_part ms_stack_part_at(struct ms_own_stack *own, uint64_t pointer)
{
    if (pointer - own->begin < own->end - own->begin || extend_own(own, pointer)) {
        return (struct ms_stack_part){own->begin, own->end, true};
    }
    uint64_t page = page_of(pointer);
    return (struct ms_stack_part){page, page + (ms_stack_readable(page) ? PAGE : 0), false};
}

bool ms_stack_part_reach(struct ms_stack_part *part, uint64_t address)
{
    const uint64_t end = page_of(address) + PAGE;
    if (part->own || part->begin == part->end || address - part->end > REACH_BYTES ||
        first_unreadable(part->end, end) != end) {
        return false;
    }
    part->end = end;
    return true;
}
