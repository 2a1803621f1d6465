"""Locks the bytes of a file in a circle, as `ping_pong` of CTDB does: byte i + 1, then byte i is unlocked. So a process that comes to a byte
which another one has waits for it; both proceed if there is a byte more than processes. Arguments: the file, the bytes, how many locks, and a
number from 1 to 255 that is this process's own, or 0: then the file is not used but for its locks.

Prints the locks for each second."""
import fcntl, os, sys, time

PATH, BYTES, LOCKS, OWN = sys.argv[1], *map(int, sys.argv[2:5])
fd = os.open(PATH, os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)
begun = time.monotonic()
for number in range(LOCKS):
    byte = number % BYTES
    fcntl.lockf(fd, fcntl.LOCK_EX, 1, (byte + 1) % BYTES)
    if OWN:
        os.pwrite(fd, bytes([OWN]), byte)
        if os.pread(fd, 1, byte)[0] != OWN:
            sys.exit(f"byte {byte} was written by another process, at lock {number}")
    fcntl.lockf(fd, fcntl.LOCK_UN, 1, byte)
print(int(LOCKS / (time.monotonic() - begun)))
