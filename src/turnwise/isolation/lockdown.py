"""Deny a process everything but computing, by a filter of the Linux kernel (seccomp), for good.

Limits of the operating system bound what a process uses; they do not stop it from opening a connection, starting
another process or deleting a file. The filter allows the system calls of `ALLOWED` and answers every other one with
"operation not permitted", which Python raises as `PermissionError`. Files may be opened for reading only. No code in
the process, Python or C, can lift it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Mapping
from typing import NamedTuple

from turnwise.errors import TurnwiseError

NO_NEW_PRIVILEGES = 38  # prctl
SET_FILTER, ALL_THREADS = 1, 1  # seccomp
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06  # instructions of the filter
NUMBER, ARCHITECTURE, FLAGS = (
    0,
    4,
    16 + 2 * 8,
)  # offsets in what it reads; FLAGS is the third argument
ALLOW, DENY = 0x7FFF0000, 0x00050000 | errno.EPERM
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
OPENAT = "openat"


class SystemCalls(NamedTuple):
    """How a processor numbers the system calls: its own mark, seccomp itself, and those that are allowed."""

    mark: int
    seccomp: int
    numbers: Mapping[str, int]


def _number(text: str) -> dict[str, int]:
    names = text.split()
    return dict(zip(names[::2], map(int, names[1::2]), strict=True))


ALLOWED = {
    "x86_64": SystemCalls(
        0xC000003E,
        317,
        _number(
            "read 0 write 1 close 3 stat 4 fstat 5 lstat 6 poll 7 lseek 8 mmap 9 mprotect 10 munmap 11 brk 12"
            " rt_sigaction 13 rt_sigprocmask 14 rt_sigreturn 15 pread64 17 readv 19 writev 20 access 21"
            " sched_yield 24 mremap 25 madvise 28 dup 32 nanosleep 35 getitimer 36 setitimer 38 getpid 39 exit 60"
            " uname 63 getcwd 79 readlink 89 gettimeofday 96 getrlimit 97 getrusage 98 sysinfo 99 times 100"
            " getuid 102 getgid 104 geteuid 107 getegid 108 sigaltstack 131 gettid 186 futex 202"
            " sched_getaffinity 204 getdents64 217 restart_syscall 219 clock_gettime 228 clock_getres 229"
            " clock_nanosleep 230 exit_group 231 openat 257 newfstatat 262 readlinkat 267 faccessat 269 ppoll 271"
            " set_robust_list 273 getrandom 318 statx 332 rseq 334 faccessat2 439"
        ),
    ),
    "aarch64": SystemCalls(
        0xC00000B7,
        277,
        _number(
            "getcwd 17 dup 23 faccessat 48 openat 56 close 57 getdents64 61 lseek 62 read 63"
            " write 64 readv 65 writev 66 pread64 67 ppoll 73 readlinkat 78 newfstatat 79 fstat 80 exit 93"
            " exit_group 94 futex 98 set_robust_list 99 nanosleep 101 getitimer 102 setitimer 103 clock_gettime 113"
            " clock_getres 114 clock_nanosleep 115 sched_getaffinity 123 sched_yield 124 restart_syscall 128"
            " sigaltstack 132 rt_sigaction 134 rt_sigprocmask 135 rt_sigreturn 139 times 153 uname 160"
            " getrlimit 163 getrusage 165 gettimeofday 169 getpid 172 getuid 174 geteuid 175 getgid 176"
            " getegid 177 gettid 178 sysinfo 179 brk 214 munmap 215 mremap 216 mmap 222 mprotect 226 madvise 233"
            " getrandom 278 statx 291 rseq 293 faccessat2 439"
        ),
    ),
}
"""By the name of the processor. `getrlimit` only reads, and there is no call here that raises a limit; neither `ioctl`,
which can type into the user's terminal, nor `fcntl`, which can have the kernel send signals to other processes."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def lock_process() -> None:
    """Let this process, and all its threads, only compute and read files from now on.

    Raises:
        TurnwiseError: this system has no such filter.
    """
    calls = ALLOWED.get(platform.machine()) if sys.platform == "linux" else None
    if calls is None:
        raise TurnwiseError(
            f"a process cannot be locked on {sys.platform} {platform.machine()}",
            hint=f"It needs Linux on {' or '.join(ALLOWED)}.",
        )
    code = write_filter(calls)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    library = ctypes.CDLL(None, use_errno=True)
    refused = library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or library.syscall(
        calls.seccomp, SET_FILTER, ALL_THREADS, ctypes.byref(program)
    )
    if refused:
        reason = os.strerror(ctypes.get_errno())
        raise TurnwiseError(f"the system does not lock a process: {reason}")


def write_filter(calls: SystemCalls) -> bytes:
    """Return the filter: each instruction is a code, two distances of jumps, and a value."""
    others = [number for name, number in calls.numbers.items() if name != OPENAT]
    program = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, calls.mark),  # numbers of another processor mean other calls
        (RETURN, 0, 0, DENY),
        (LOAD, 0, 0, NUMBER),
        (EQUAL, 0, 4, calls.numbers[OPENAT]),
        (LOAD, 0, 0, FLAGS),
        (ANY_BIT, 0, 1, WRITING),
        (RETURN, 0, 0, DENY),
        (RETURN, 0, 0, ALLOW),
    ]
    for number in others:
        program += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    program.append((RETURN, 0, 0, DENY))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
