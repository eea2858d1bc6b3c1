/* SPDX-License-Identifier: Apache-2.0 */
/* glibc resolves RTLD_NEXT and RTLD_DEFAULT by the return address of its caller. An ordinary
 * wrapper would make it search from this library instead of from the application's. So the exported
 * functions are a few instructions: they check the name, and if it is none of ours, they jump to
 * the real function with stack and registers unchanged.
 *
 * They are unversioned, as everything here: glibc then binds versioned references to them, too
 * (references to another version would skip a versioned definition). */

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shim/door/entry.h"
#include "shim/door/stubs.h"
#include "shim/door/verbs.h"
#include "shim/driver/gate.h"
#include "shim/driver/next_dlsym.h"
#include "shim/frameworks/cupy.h"
#include "shim/frameworks/jax.h"
#include "shim/frameworks/torch_fabric.h"
#include "shim/process/process.h"

#ifndef __LP64__
#    error "memshim supports 64-bit Linux only"
#endif

/* Returned in registers, as a structure of two words. */
struct dlsym_answer {
    void *address;
    uintptr_t answered; /* 0: not ours, jump on */
};

__attribute__((visibility("hidden"))) struct dlsym_answer ms_answer_dlsym(void *handle,
                                                                          const char *name);
__attribute__((visibility("hidden"))) struct dlsym_answer
ms_answer_dlvsym(void *handle, const char *name, const char *version);

/* Turns what the real function found for one of our names into the answer. If it found our own
 * export, the search began in the global scope. Our export counts only if the driver has the
 * function and the caller can reach it. That is so if the driver is loaded behind us in the global
 * scope. For RTLD_DEFAULT it may also be in a scope of the caller's own; that cannot be checked
 * from here, and is assumed if libcuda is loaded at all. */
static void *hook_for(void *found, void *handle, int row)
{
    if (found == NULL) {
        return NULL;
    }
    const char *name = ms_hook_table[row].symbol;
    bool driver_known = ms_entry_open() != &ms_real_none;
    if (found == ms_hook_entry[row]) {
        void *behind = ms_real_dlsym(RTLD_NEXT, name);
        if (behind != NULL) {
            ms_resolve_note_asked();
            return found;
        }
        if (handle != RTLD_DEFAULT || !driver_known || ms_real_find(name) == NULL) {
            return NULL; /* dlerror now says what it would say without us */
        }
    }
    (void)dlerror(); /* for the caller nothing failed */
    ms_resolve_note_asked();
    return found == ms_hook_entry[row] || ms_process_inert()
               ? found
               : ms_hook_for(found, &(struct ms_query){name, 0, 0});
}

/* RTLD_NEXT means what comes after the caller. For a caller before us, that is our export; for one
 * behind us (another interposer that looks for what it wraps), the driver's own. The real function
 * decides that, after the jump. If neither a library behind us nor the driver has the function, our
 * export must not be found: the answer is the failed search, with its dlerror. */
static bool nothing_next(int row)
{
    const char *name = ms_hook_table[row].symbol;
    bool driver_has = ms_entry_open() != &ms_real_none && ms_real_find(name) != NULL;
    return !driver_has && ms_real_dlsym(RTLD_NEXT, name) == NULL;
}

/* From a handle of libibverbs; no program is known to look these up by RTLD_DEFAULT or
 * RTLD_NEXT. */
static bool is_verb(void *handle, const char *name)
{
    return handle != RTLD_NEXT && handle != RTLD_DEFAULT && ms_verbs_known(name);
}

static bool is_found_by_caller(void *handle)
{
    return handle == RTLD_NEXT || handle == RTLD_DEFAULT;
}

/* From a handle of the plugin, which was loaded for this function. */
static bool is_plugin(void *handle, const char *name)
{
    return name != NULL && !is_found_by_caller(handle) && strcmp(name, MS_JAX_ENTRY) == 0;
}

static bool is_python_module(void *handle, const char *name)
{
    return name != NULL && !is_found_by_caller(handle) &&
           strncmp(name, MS_PYTHON_MODULE, sizeof(MS_PYTHON_MODULE) - 1) == 0;
}

static bool is_fabric_query(void *handle, const char *name)
{
    return name != NULL && !is_found_by_caller(handle) && strcmp(name, MS_NVML_FABRIC) == 0;
}

static bool is_named_as_the_drivers(const char *name)
{
    return name != NULL && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

/* A function of the driver's that memshim does not know; null for other names. */
static void *unknown_function(const char *name)
{
    return is_named_as_the_drivers(name) && ms_entry_open() != &ms_real_none &&
                   !ms_gate_is_harmless(name)
               ? ms_real_find(name)
               : NULL;
}

/* The answer for a name without a row, if the real function searches by its caller's address: it is
 * reached by the jump, so the program gets the driver's own function, without a stub. */
static struct dlsym_answer found_by_caller(const char *name)
{
    if (unknown_function(name) != NULL) {
        ms_stub_lacking(name);
    }
    return (struct dlsym_answer){NULL, 0};
}

/* The answer for a name without a row, from what the real function found. Most such names are not
 * the driver's, and many are not found. */
static struct dlsym_answer stub_for(void *found, const char *name)
{
    bool unknown = found != NULL && found == unknown_function(name);
    return (struct dlsym_answer){unknown ? ms_stub_for(name, found) : found, 1};
}

struct dlsym_answer ms_answer_dlsym(void *handle, const char *name)
{
    ms_dlsym_t next = ms_next_dlsym_function();
    if (is_verb(handle, name)) {
        return (struct dlsym_answer){ms_verbs_hook(name, next(handle, name)), 1};
    }
    if (is_plugin(handle, name)) {
        return (struct dlsym_answer){ms_jax_entry(next(handle, name)), 1};
    }
    if (is_python_module(handle, name)) {
        void *found = next(handle, name);
        ms_cupy_module(name, found);
        return (struct dlsym_answer){found, 1};
    }
    if (is_fabric_query(handle, name)) {
        return (struct dlsym_answer){ms_torch_fabric(next(handle, name)), 1};
    }
    int row = ms_hook_of_symbol(name);
    if (row < 0) {
        return is_found_by_caller(handle) ? found_by_caller(name)
                                          : stub_for(next(handle, name), name);
    }
    if (handle == RTLD_NEXT) {
        return (struct dlsym_answer){NULL, nothing_next(row)};
    }
    return (struct dlsym_answer){hook_for(next(handle, name), handle, row), 1};
}

struct dlsym_answer ms_answer_dlvsym(void *handle, const char *name, const char *version)
{
    (void)ms_next_dlsym_function();
    ms_dlvsym_t next = atomic_load_explicit(&ms_next_dlvsym, memory_order_acquire);
    if (is_verb(handle, name)) {
        return (struct dlsym_answer){ms_verbs_hook(name, next(handle, name, version)), 1};
    }
    int row = ms_hook_of_symbol(name);
    if (row < 0) {
        return is_found_by_caller(handle) ? found_by_caller(name)
                                          : stub_for(next(handle, name, version), name);
    }
    if (handle == RTLD_NEXT) {
        return (struct dlsym_answer){NULL, nothing_next(row)};
    }
    return (struct dlsym_answer){hook_for(next(handle, name, version), handle, row), 1};
}

/* Any other name costs a few compares and a jump, once the target is known. The names to examine
 * begin like the driver's ("cu" and a capital letter), or with "ib", "Ge" (GetPjrtApi), "Py"
 * (PyInit_) or "nv" (nvml...). That leaves out the runtime's "cuda...", the libraries' "cublas..."
 * and the like, and "curl...". The frame saves the arguments, and keeps the stack aligned, around
 * the call. */
#if defined(__x86_64__)
#    define EXPORT_JUMP(name, answer, target)       \
        __asm__(".pushsection .text\n"              \
                ".globl " name "\n"                 \
                ".type " name ", @function\n"       \
                ".p2align 4\n" name ":\n"           \
                ".cfi_startproc\n"                  \
                "    endbr64\n"                     \
                "    movq " target "(%rip), %rax\n" \
                "    testq %rax, %rax\n"            \
                "    je 1f\n"                       \
                "    testq %rsi, %rsi\n"            \
                "    je 2f\n"                       \
                "    cmpb $'c', (%rsi)\n"           \
                "    je 4f\n"                       \
                "    cmpb $'G', (%rsi)\n"           \
                "    je 5f\n"                       \
                "    cmpb $'P', (%rsi)\n"           \
                "    je 6f\n"                       \
                "    cmpb $'n', (%rsi)\n"           \
                "    je 7f\n"                       \
                "    cmpb $'i', (%rsi)\n"           \
                "    jne 2f\n"                      \
                "    cmpb $'b', 1(%rsi)\n"          \
                "    jne 2f\n"                      \
                "    jmp 1f\n"                      \
                "5:  cmpb $'e', 1(%rsi)\n"          \
                "    jne 2f\n"                      \
                "    jmp 1f\n"                      \
                "6:  cmpb $'y', 1(%rsi)\n"          \
                "    jne 2f\n"                      \
                "    jmp 1f\n"                      \
                "7:  cmpb $'v', 1(%rsi)\n"          \
                "    jne 2f\n"                      \
                "    jmp 1f\n"                      \
                "4:  cmpb $'u', 1(%rsi)\n"          \
                "    jne 2f\n"                      \
                "    movzbl 2(%rsi), %r11d\n"       \
                "    subl $'A', %r11d\n"            \
                "    cmpl $25, %r11d\n"             \
                "    ja 2f\n"                       \
                "1:  subq $24, %rsp\n"              \
                "    .cfi_adjust_cfa_offset 24\n"   \
                "    movq %rdi, (%rsp)\n"           \
                "    movq %rsi, 8(%rsp)\n"          \
                "    movq %rdx, 16(%rsp)\n"         \
                "    call " answer "\n"             \
                "    movq %rdx, %rcx\n"             \
                "    movq (%rsp), %rdi\n"           \
                "    movq 8(%rsp), %rsi\n"          \
                "    movq 16(%rsp), %rdx\n"         \
                "    addq $24, %rsp\n"              \
                "    .cfi_adjust_cfa_offset -24\n"  \
                "    testq %rcx, %rcx\n"            \
                "    jne 3f\n"                      \
                "    movq " target "(%rip), %rax\n" \
                "2:  jmp *%rax\n"                   \
                "3:  ret\n"                         \
                ".cfi_endproc\n"                    \
                ".size " name ", . - " name "\n"    \
                ".popsection\n")
#else
#    define EXPORT_JUMP(name, answer, target)             \
        __asm__(".pushsection .text\n"                    \
                ".globl " name "\n"                       \
                ".type " name ", %function\n"             \
                ".p2align 4\n" name ":\n"                 \
                ".cfi_startproc\n"                        \
                "    hint #34\n" /* bti c */              \
                "    adrp x16, " target "\n"              \
                "    ldr x16, [x16, #:lo12:" target "]\n" \
                "    cbz x16, 1f\n"                       \
                "    cbz x1, 2f\n"                        \
                "    ldrb w17, [x1]\n"                    \
                "    cmp w17, #'c'\n"                     \
                "    b.eq 4f\n"                           \
                "    cmp w17, #'G'\n"                     \
                "    b.eq 5f\n"                           \
                "    cmp w17, #'P'\n"                     \
                "    b.eq 6f\n"                           \
                "    cmp w17, #'n'\n"                     \
                "    b.eq 7f\n"                           \
                "    cmp w17, #'i'\n"                     \
                "    b.ne 2f\n"                           \
                "    ldrb w17, [x1, #1]\n"                \
                "    cmp w17, #'b'\n"                     \
                "    b.ne 2f\n"                           \
                "    b 1f\n"                              \
                "5:  ldrb w17, [x1, #1]\n"                \
                "    cmp w17, #'e'\n"                     \
                "    b.ne 2f\n"                           \
                "    b 1f\n"                              \
                "6:  ldrb w17, [x1, #1]\n"                \
                "    cmp w17, #'y'\n"                     \
                "    b.ne 2f\n"                           \
                "    b 1f\n"                              \
                "7:  ldrb w17, [x1, #1]\n"                \
                "    cmp w17, #'v'\n"                     \
                "    b.ne 2f\n"                           \
                "    b 1f\n"                              \
                "4:  ldrb w17, [x1, #1]\n"                \
                "    cmp w17, #'u'\n"                     \
                "    b.ne 2f\n"                           \
                "    ldrb w17, [x1, #2]\n"                \
                "    sub w17, w17, #'A'\n"                \
                "    cmp w17, #25\n"                      \
                "    b.hi 2f\n"                           \
                "1:  stp x29, x30, [sp, #-48]!\n"         \
                "    .cfi_def_cfa_offset 48\n"            \
                "    .cfi_offset x29, -48\n"              \
                "    .cfi_offset x30, -40\n"              \
                "    mov x29, sp\n"                       \
                "    stp x0, x1, [sp, #16]\n"             \
                "    str x2, [sp, #32]\n"                 \
                "    bl " answer "\n"                     \
                "    cbnz x1, 3f\n"                       \
                "    ldp x0, x1, [sp, #16]\n"             \
                "    ldr x2, [sp, #32]\n"                 \
                "    ldp x29, x30, [sp], #48\n"           \
                "    adrp x16, " target "\n"              \
                "    ldr x16, [x16, #:lo12:" target "]\n" \
                "2:  br x16\n"                            \
                "3:  ldp x29, x30, [sp], #48\n"           \
                "    ret\n"                               \
                ".cfi_endproc\n"                          \
                ".size " name ", . - " name "\n"          \
                ".popsection\n")
#endif

EXPORT_JUMP("dlsym", "ms_answer_dlsym", "ms_next_dlsym");
EXPORT_JUMP("dlvsym", "ms_answer_dlvsym", "ms_next_dlvsym");
