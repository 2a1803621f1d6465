"""Becomes another program, whose writes that begin in a range of bytes fail with EIO, and that gets no io_uring: its disks are written
by pwritev2, which a filter of system calls can look at. What it starts inherits that.

    bad_places.py START END PROGRAM ARGUMENT...
"""

import ctypes
import os
import struct
import sys

IO_URING_SETUP, PWRITE64, PWRITEV2 = 425, 18, 328
EIO, ENOSYS = 5, 38
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
# Of what a filter sees: the number of the call, and the position's lower and upper half.
NUMBER, LOW, HIGH = 0, 16 + 3 * 8, 16 + 3 * 8 + 4

start, end = int(sys.argv[1]), int(sys.argv[2])
assert os.uname().machine == "x86_64", "the numbers above are that machine's"
assert 0 <= start < end < 1 << 32, "a range below 4 GiB"
program = [
    (LOAD, 0, 0, NUMBER),
    (EQUAL, 10, 0, IO_URING_SETUP),
    (EQUAL, 2, 0, PWRITEV2),
    (EQUAL, 1, 0, PWRITE64),
    (RETURN, 0, 0, ALLOW),
    (LOAD, 0, 0, HIGH),
    (EQUAL, 0, 3, 0),
    (LOAD, 0, 0, LOW),
    (AT_LEAST, 0, 1, start),
    (AT_LEAST, 0, 1, end),
    (RETURN, 0, 0, ALLOW),
    (RETURN, 0, 0, ERRNO | EIO),
    (RETURN, 0, 0, ERRNO | ENOSYS),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


libc = ctypes.CDLL(None, use_errno=True)
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
assert libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
told = Filter(len(program), ctypes.cast(code, ctypes.c_void_p))
assert libc.prctl(SECCOMP, FILTER, ctypes.byref(told), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[3], sys.argv[3:])
