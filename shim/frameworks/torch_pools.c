/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's pools (torch.cuda.MemPool) that have an allocator of their own, as for NCCL's memory or
 * vLLM's sleep mode. With expandable segments on, PyTorch 2.6 and earlier do not ask that
 * allocator, and 2.7 to 2.9 refuse to allocate in such a pool. A program that did not choose the
 * segments must meet neither. So where memshim switched them on, they go off again when the program
 * makes such a pool. What lies in them by then stays there.
 *
 * libtorch_python calls these functions through its PLT, so it reaches those of their names here
 * (c10/cuda/CUDACachingAllocator.h, CUDAAllocatorConfig.h):
 *   c10::cuda::MemPool::MemPool(CUDACachingAllocator::CUDAAllocator *allocator, bool, ...);
 *   void c10::cuda::CUDACachingAllocator::setAllocatorSettings(const std::string &);
 * From 2.10 on, which is right, they have other names. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "shim/driver/elf.h"
#include "shim/frameworks/torch_settings.h"
#include "shim/process/log.h"
#include "shim/process/process.h"
#include "shim/process/session.h"

#define EXPORTED      __attribute__((visibility("default")))
#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)

/* With the std::string of libstdc++, and with that before C++11. */
#define SET \
    _ZN3c104cuda20CUDACachingAllocator20setAllocatorSettingsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE
#define SET_OLD _ZN3c104cuda20CUDACachingAllocator20setAllocatorSettingsERKSs

/* std::string, for a function that reads it. Of the older one only this first member is one, and no
 * more of it is read: PyTorch has it in versions that pass the text on as it is. */
struct cxx_string {
    const char *text;
    size_t length;
    size_t capacity[2];
};

typedef void (*set_t)(const struct cxx_string *settings);

/* Null: no such function. */
static void *real(const char *name)
{
    struct ms_loaded_elf elf;
    return ms_elf_loaded("libc10_cuda.so", &elf) ? ms_elf_function(&elf, name) : NULL;
}

#define SET_SETTINGS(name)                                      \
    EXPORTED void name(const struct cxx_string *settings);      \
    void name(const struct cxx_string *settings)                \
    {                                                           \
        const set_t set = (set_t)real(TEXT(name));              \
        if (set != NULL) {                                      \
            set(settings); /* PyTorch's own may be read here */ \
            ms_torch_settings_made(settings->text);             \
        }                                                       \
    }

SET_SETTINGS(SET)
SET_SETTINGS(SET_OLD)

static void leave_segments(void)
{
    static const char said[] =
        "PyTorch's setting expandable_segments:True, switched on by memshim, was switched off "
        "again, because the program makes a torch.cuda.MemPool, which this PyTorch does not "
        "support with it";
    static atomic_flag left = ATOMIC_FLAG_INIT;
    const char *settings = ms_torch_settings_without_segments();
    set_t set = (set_t)real(TEXT(SET));
    set = set != NULL ? set : (set_t)real(TEXT(SET_OLD));
    if (settings != NULL && set != NULL && !ms_process_inert() &&
        !atomic_flag_test_and_set(&left)) {
        set(&(struct cxx_string){.text = settings, .length = strlen(settings)});
        ms_session_note(said);
        ms_log(MS_LOG_INFO, "%s", said);
    }
}

/* Whole registers: an older constructor has fewer arguments, and the rest are passed on unread. */
typedef void (*construct_t)(void *pool, void *allocator, size_t a, size_t b, size_t c);

#define CONSTRUCTOR(name, unsupported)                                             \
    EXPORTED void name(void *pool, void *allocator, size_t a, size_t b, size_t c); \
    void name(void *pool, void *allocator, size_t a, size_t b, size_t c)           \
    {                                                                              \
        const construct_t construct = (construct_t)real(TEXT(name));               \
        if (unsupported) {                                                         \
            leave_segments();                                                      \
        }                                                                          \
        if (construct != NULL) {                                                   \
            construct(pool, allocator, a, b, c);                                   \
        }                                                                          \
    }

/* To 2.7; 2.8; 2.9. */
CONSTRUCTOR(_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEb, true)
CONSTRUCTOR(_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEbbb,
            allocator != NULL)
CONSTRUCTOR(_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEbb, allocator != NULL)
