# SPDX-License-Identifier: Apache-2.0
"""Runs a command without the system calls that container engines bar: those that the documentation
of Docker's default seccomp profile names, where Linux on x86-64 still has them, and like ones that
came since. (Of clone, an engine bars some flags alone: it is left.) They fail with EPERM; clone3
with ENOSYS, as there.

    confined.py COMMAND [ARGUMENT...]
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

BARRED = {
    "acct": 163,
    "add_key": 248,
    "bpf": 321,
    "clock_adjtime": 305,
    "clock_settime": 227,
    "delete_module": 176,
    "finit_module": 313,
    "fsmount": 432,
    "fsopen": 430,
    "get_mempolicy": 239,
    "init_module": 175,
    "ioperm": 173,
    "iopl": 172,
    "kcmp": 312,
    "kexec_file_load": 320,
    "kexec_load": 246,
    "keyctl": 250,
    "lookup_dcookie": 212,
    "mbind": 237,
    "mount": 165,
    "move_mount": 429,
    "move_pages": 279,
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "open_tree": 428,
    "perf_event_open": 298,
    "personality": 135,
    "pidfd_getfd": 438,
    "pivot_root": 155,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "ptrace": 101,
    "quotactl": 179,
    "reboot": 169,
    "request_key": 249,
    "set_mempolicy": 238,
    "setns": 308,
    "settimeofday": 164,
    "swapoff": 168,
    "swapon": 167,
    "sysfs": 139,
    "umount2": 166,
    "unshare": 272,
    "userfaultfd": 323,
    "ustat": 136,
    "vhangup": 153,
}
CLONE3 = 435
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF: LD|W|ABS, JMP|JEQ|K, RET|K
ALLOW, FAIL_WITH = 0x7FFF0000, 0x00050000
NO_NEW_PRIVILEGES, FILTER = 38, 1
SECCOMP = 317


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def main() -> None:
    answers = {number: errno.EPERM for number in BARRED.values()} | {CLONE3: errno.ENOSYS}
    code = struct.pack("HBBI", LOAD_NUMBER, 0, 0, 0)
    for number, error in answers.items():
        code += struct.pack("HBBI", JUMP_IF_EQUAL, 0, 1, number)
        code += struct.pack("HBBI", RETURN, 0, 0, FAIL_WITH | error)
    code += struct.pack("HBBI", RETURN, 0, 0, ALLOW)
    program = Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(
        SECCOMP, FILTER, 0, ctypes.byref(program)
    ):
        sys.exit(f"confined.py: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
