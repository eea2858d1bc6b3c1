/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed number of stubs, each 32 bytes of code that reads two tables: whether it was called
 * before, and its target. No memory is made executable at run time. */
#include "shim/door/stubs.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/locks/lock.h"
#include "shim/device/capture.h"
#include "shim/driver/gate.h"
#include "shim/driver/hook.h"

#define STUBS       64
#define STUB_BYTES  32
#define NAME_LENGTH 96
#define TEXT(x)     #x
#define NUMBER(x)   TEXT(x)

/* Read by the assembly below. */
__attribute__((visibility("hidden"))) _Atomic uint8_t ms_stub_called[STUBS];
__attribute__((visibility("hidden"))) void *_Atomic ms_stub_function[STUBS];
__attribute__((visibility("hidden"))) void ms_stub_note(size_t stub, void *first);
extern __attribute__((visibility("hidden"))) const char ms_stubs[];

static char names[STUBS][NAME_LENGTH];

static bool begins_capture(const char *name)
{
    return strstr(name, "BeginCapture") != NULL || strstr(name, "BeginRecapture") != NULL;
}

void ms_stub_lacking(const char *name)
{
    ms_gate_note_unknown(name);
    if (begins_capture(name) && ms_guard_enter(__builtin_return_address(0))) {
        ms_captures_unseen();
        ms_guard_leave();
    }
}

void *ms_stub_for(const char *name, void *function)
{
    size_t stub = 0;
    ms_lock_acquire(MS_LOCK(STUBS));
    while (stub < STUBS && atomic_load(&ms_stub_function[stub]) != NULL &&
           atomic_load(&ms_stub_function[stub]) != function) {
        stub++;
    }
    if (stub < STUBS && atomic_load(&ms_stub_function[stub]) == NULL) {
        (void)snprintf(names[stub], sizeof names[stub], "%s", name);
        atomic_store(&ms_stub_function[stub], function);
    }
    ms_lock_release(MS_LOCK(STUBS));
    if (stub == STUBS) {
        ms_stub_lacking(name);
        return function;
    }
    return (void *)(ms_stubs + stub * STUB_BYTES);
}

/* Runs as a counted call: it waits while the gate is closed, and the next thread to close the gate
 * sees the refusal. first: the first argument of the program's call. */
void ms_stub_note(size_t stub, void *first)
{
    int error = errno;
    ms_gate_enter();
    ms_gate_note_unknown(names[stub]);
    ms_gate_leave();
    if (!begins_capture(names[stub])) {
        atomic_store(&ms_stub_called[stub], 1);
    } else if (ms_guard_enter(__builtin_return_address(0))) {
        ms_capture_begins((CUstream)first);
        ms_guard_leave();
    }
    errno = error;
}

/* Argument registers are saved around the note. */
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
        ".globl ms_stubs\n"
        ".hidden ms_stubs\n"
        ".type ms_stubs, @function\n"
        ".p2align 5\n"
        "ms_stubs:\n"
        ".cfi_startproc\n"
        ".set stub, 0\n"
        ".rept " NUMBER(STUBS) "\n"
                               ".p2align 5\n"
                               "    endbr64\n"
                               "    cmpb $0, ms_stub_called+stub(%rip)\n"
                               "    je 1f\n"
                               "    jmp *ms_stub_function+8*stub(%rip)\n"
                               "1:  movl $stub, %r11d\n"
                               "    jmp stub_first\n"
                               ".set stub, stub+1\n"
                               ".endr\n"
                               ".p2align 5\n"
                               "stub_first:\n"
                               "    pushq %rdi\n    pushq %rsi\n    pushq %rdx\n    pushq %rcx\n"
                               "    pushq %r8\n    pushq %r9\n    pushq %rax\n    pushq %r10\n"
                               "    pushq %r11\n"
                               "    .cfi_adjust_cfa_offset 72\n"
                               "    subq $128, %rsp\n"
                               "    .cfi_adjust_cfa_offset 128\n"
                               "    movups %xmm0, (%rsp)\n    movups %xmm1, 16(%rsp)\n"
                               "    movups %xmm2, 32(%rsp)\n    movups %xmm3, 48(%rsp)\n"
                               "    movups %xmm4, 64(%rsp)\n    movups %xmm5, 80(%rsp)\n"
                               "    movups %xmm6, 96(%rsp)\n    movups %xmm7, 112(%rsp)\n"
                               "    movq %rdi, %rsi\n"
                               "    movl %r11d, %edi\n"
                               "    call ms_stub_note\n"
                               "    movups (%rsp), %xmm0\n    movups 16(%rsp), %xmm1\n"
                               "    movups 32(%rsp), %xmm2\n    movups 48(%rsp), %xmm3\n"
                               "    movups 64(%rsp), %xmm4\n    movups 80(%rsp), %xmm5\n"
                               "    movups 96(%rsp), %xmm6\n    movups 112(%rsp), %xmm7\n"
                               "    addq $128, %rsp\n"
                               "    .cfi_adjust_cfa_offset -128\n"
                               "    popq %r11\n    popq %r10\n    popq %rax\n    popq %r9\n"
                               "    popq %r8\n    popq %rcx\n    popq %rdx\n    popq %rsi\n"
                               "    popq %rdi\n"
                               "    .cfi_adjust_cfa_offset -72\n"
                               "    leaq ms_stub_function(%rip), %r10\n"
                               "    jmp *(%r10,%r11,8)\n"
                               ".cfi_endproc\n"
                               ".size ms_stubs, . - ms_stubs\n"
                               ".popsection\n");
#else
__asm__(".pushsection .text\n"
        ".globl ms_stubs\n"
        ".hidden ms_stubs\n"
        ".type ms_stubs, %function\n"
        ".p2align 5\n"
        "ms_stubs:\n"
        ".cfi_startproc\n"
        ".set stub, 0\n"
        ".rept " NUMBER(STUBS) "\n"
                               ".p2align 5\n"
                               "    hint #34\n" /* bti c */
                               "    mov w17, #stub\n"
                               "    adrp x16, ms_stub_called\n"
                               "    add x16, x16, #:lo12:ms_stub_called\n"
                               "    ldrb w16, [x16, x17]\n"
                               "    cbz w16, stub_first\n"
                               "    b stub_on\n"
                               ".set stub, stub+1\n"
                               ".endr\n"
                               ".p2align 5\n"
                               "stub_first:\n"
                               "    stp x29, x30, [sp, #-224]!\n"
                               "    .cfi_def_cfa_offset 224\n"
                               "    .cfi_offset x29, -224\n"
                               "    .cfi_offset x30, -216\n"
                               "    mov x29, sp\n"
                               "    stp x0, x1, [sp, #16]\n    stp x2, x3, [sp, #32]\n"
                               "    stp x4, x5, [sp, #48]\n    stp x6, x7, [sp, #64]\n"
                               "    stp x8, x17, [sp, #80]\n"
                               "    stp q0, q1, [sp, #96]\n    stp q2, q3, [sp, #128]\n"
                               "    stp q4, q5, [sp, #160]\n    stp q6, q7, [sp, #192]\n"
                               "    mov x1, x0\n"
                               "    mov w0, w17\n"
                               "    bl ms_stub_note\n"
                               "    ldp q6, q7, [sp, #192]\n    ldp q4, q5, [sp, #160]\n"
                               "    ldp q2, q3, [sp, #128]\n    ldp q0, q1, [sp, #96]\n"
                               "    ldp x8, x17, [sp, #80]\n"
                               "    ldp x6, x7, [sp, #64]\n    ldp x4, x5, [sp, #48]\n"
                               "    ldp x2, x3, [sp, #32]\n    ldp x0, x1, [sp, #16]\n"
                               "    ldp x29, x30, [sp], #224\n"
                               "    .cfi_restore x29\n"
                               "    .cfi_restore x30\n"
                               "    .cfi_def_cfa_offset 0\n"
                               "stub_on:\n"
                               "    adrp x16, ms_stub_function\n"
                               "    add x16, x16, #:lo12:ms_stub_function\n"
                               "    ldr x16, [x16, x17, lsl #3]\n"
                               "    br x16\n"
                               ".cfi_endproc\n"
                               ".size ms_stubs, . - ms_stubs\n"
                               ".popsection\n");
#endif
