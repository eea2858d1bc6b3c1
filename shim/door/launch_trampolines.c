/* SPDX-License-Identifier: Apache-2.0 */
/* The trampolines of launches, in assembly. The compiler would save registers for the slow path,
 * which would cost time on every launch. A trampoline counts the call, checks whether the thread
 * knows the function (shim/driver/gate.h), and calls the driver's own with the arguments on the
 * stack. An unknown function goes to first_<symbol> (trampolines.c), with all arguments
 * unchanged. */
#include "shim/driver/gate.h"

#ifdef MS_LAUNCH_TRAMPOLINES

#    include <stddef.h>

#    include "shim/driver/hook.h"

_Static_assert(offsetof(struct ms_gate_thread, calls) == 0, "a trampoline counts there");
_Static_assert(offsetof(struct ms_gate_thread, known) == 8, "a trampoline reads there");

/* Constants of the compiler, for the assembler. */
__attribute__((used)) static void constants(void)
{
#    define OFFSET_SERVED(symbol)
#    define OFFSET_FORWARDED(symbol)
#    define OFFSET_WATCHED(symbol)
#    define OFFSET_GATED(symbol)
#    define OFFSET_TOUCHES(symbol)
#    define OFFSET_COMPLETES(symbol)
#    define OFFSET_LAUNCHED(symbol)                        \
        __asm__ volatile(".set offset_of_" #symbol ", %c0" \
                         :                                 \
                         : "i"(offsetof(struct ms_real_functions, symbol)));
#    define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
        OFFSET_##disposition(symbol)
#    include "shim/tables/hooks.def"
    __asm__ volatile(".set seen_factor, %c0\n\t.set seen_shift, %c1"
                     :
                     : "i"((int)MS_SEEN_FACTOR), "i"(32 - MS_SEEN_BITS));
}

/* f64, f32: the register that holds the function. words: arguments on the stack, eight bytes each.
 * pad: 1 if their number is even, so that the stack is aligned for the call. */
#    define TRAMPOLINE(name, f64, f32, words, pad)                     \
        __asm__(".pushsection .text\n"                                 \
                ".globl " name ", trampoline_" name "\n"               \
                ".hidden trampoline_" name "\n"                        \
                ".type " name ", @function\n"                          \
                ".type trampoline_" name ", @function\n"               \
                ".p2align 4\n" name ":\ntrampoline_" name ":\n"        \
                ".cfi_startproc\n"                                     \
                "    imull $seen_factor, " f32 ", %eax\n"              \
                "    shrl $seen_shift, %eax\n"                         \
                "    movq ms_gate_thread@gottpoff(%rip), %r11\n"       \
                "    incl %fs:(%r11)\n"                                \
                "    movq %fs:8(%r11), %r11\n"                         \
                "    cmpq " f64 ", (%r11,%rax,8)\n"                    \
                "    jne 1f\n"                                         \
                ".if " pad "\n"                                        \
                "    subq $8, %rsp\n"                                  \
                "    .cfi_adjust_cfa_offset 8\n"                       \
                ".endif\n"                                             \
                ".rept " words "\n"                                    \
                "    pushq 8*(" words "+" pad ")(%rsp)\n"              \
                "    .cfi_adjust_cfa_offset 8\n"                       \
                ".endr\n"                                              \
                "    movq ms_real_published(%rip), %rax\n"             \
                "    call *offset_of_" name "(%rax)\n"                 \
                "    movq ms_gate_thread@gottpoff(%rip), %r11\n"       \
                "    decl %fs:(%r11)\n"                                \
                "    addq $8*(" words "+" pad "), %rsp\n"              \
                "    .cfi_def_cfa_offset 8\n"                          \
                "    ret\n"                                            \
                "1:  movq ms_gate_thread@gottpoff(%rip), %r11\n"       \
                "    decl %fs:(%r11)\n"                                \
                "    jmp first_" name "\n"                             \
                ".cfi_endproc\n"                                       \
                ".size " name ", . - " name "\n"                       \
                ".size trampoline_" name ", . - trampoline_" name "\n" \
                ".popsection\n")

TRAMPOLINE("cuLaunchKernel", "%rdi", "%edi", "5", "0");
TRAMPOLINE("cuLaunchKernel_ptsz", "%rdi", "%edi", "5", "0");
TRAMPOLINE("cuLaunchKernelEx", "%rsi", "%esi", "0", "1");
TRAMPOLINE("cuLaunchKernelEx_ptsz", "%rsi", "%esi", "0", "1");
TRAMPOLINE("cuLaunchCooperativeKernel", "%rdi", "%edi", "4", "1");
TRAMPOLINE("cuLaunchCooperativeKernel_ptsz", "%rdi", "%edi", "4", "1");
TRAMPOLINE("cuGraphLaunch", "%rdi", "%edi", "0", "1");
TRAMPOLINE("cuGraphLaunch_ptsz", "%rdi", "%edi", "0", "1");

#endif
