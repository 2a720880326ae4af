"""Runs a command as on a kernel that gives it no io_uring.

    without_ring.py ENOSYS|EPERM COMMAND...

ENOSYS is a kernel without it; EPERM is one where it is switched off (kernel.io_uring_disabled), as a container often has it. A filter of
system calls answers for the kernel, to the command and all that it starts.
"""

import ctypes
import errno
import os
import struct
import sys

# The same on all architectures.
IO_URING_SETUP = 425
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
PR_SET_NO_NEW_PRIVS = 38
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW = 0x0005_0000, 0x7FFF_0000


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def main() -> None:
    answer = SECCOMP_RET_ERRNO | getattr(errno, sys.argv[1])
    instructions = [
        (LOAD_WORD, 0, 0, 0),  # the call's number
        (JUMP_IF_EQUAL, 0, 1, IO_URING_SETUP),
        (RETURN, 0, 0, answer),
        (RETURN, 0, 0, SECCOMP_RET_ALLOW),
    ]
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    program = Program(len(instructions), code)
    for call in (
        (PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero),
        (PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.byref(program), zero, zero),
    ):
        if libc.prctl(*call) != 0:
            sys.exit(f"without_ring.py: prctl: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[2], sys.argv[2:])


main()
