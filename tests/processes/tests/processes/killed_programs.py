"""One call on a mount. Arguments: the mount, and which call. Says `ready` when everything before it is done, and makes the call after a line
on standard input."""
import fcntl, mmap, os, sys

mount, call = sys.argv[1:]
path = f"{mount}/{call}"
fd = None if call in ("create", "open", "stat", "list", "truncate") else os.open(path, os.O_RDWR)
page = mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ) if call == "mapped" else None
if call == "execute":
    fcntl.lockf(fd, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.readline()
{
    "read": lambda: os.pread(fd, 4096, 0),
    "mapped": lambda: page[5],
    "write": lambda: os.pwrite(fd, b"w" * 10_000, 100),
    "truncate": lambda: os.truncate(path, 50),
    "create": lambda: os.open(path, os.O_RDWR | os.O_CREAT),
    "open": lambda: os.open(path, os.O_RDONLY),
    "stat": lambda: os.stat(path),
    "list": lambda: os.listdir(mount),
    "flock": lambda: fcntl.flock(fd, fcntl.LOCK_EX),
    "lockf": lambda: fcntl.lockf(fd, fcntl.LOCK_EX),
    # The kernel closes the locked file, and holds a lock of the process while it does.
    "execute": lambda: os.execvp("sleep", ["sleep", "60"]),
}[call]()
