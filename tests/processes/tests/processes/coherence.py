"""Every way in which a program gets bytes of a file, on two mounts, against a model: after each change that has returned, on either mount,
every way on both mounts shows the content of the model. Arguments: the two mounts, a seed, and the number of changes."""
import mmap, os, random, sys, threading

MOUNTS, SEED, CHANGES = sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
MAX = 300_000
random_ = random.Random(SEED)
OUT = os.memfd_create("out")


def whole(read):
    """All that a function of (offset, length) returns until the end."""
    parts, at = [], 0
    while part := read(at, 1 << 20):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def sendfile(fd, at, length):
    os.ftruncate(OUT, 0)
    os.lseek(OUT, 0, os.SEEK_SET)
    return os.pread(OUT, os.sendfile(OUT, fd, at, length), 0)


def splice(fd, at, length):
    r, w = os.pipe()
    try:
        return os.read(r, os.splice(fd, w, min(length, 1 << 15), offset_src=at))
    finally:
        os.close(r), os.close(w)


def copied(fd, to, at, length):
    return os.pread(to, os.copy_file_range(fd, to, length, at, 0), 0)


def preadv(fd, at, length):
    buffers = [bytearray(5000), bytearray(length)]
    count = os.preadv(fd, buffers, at)
    return b"".join(buffers)[:count]


def mapped(fd, _):
    size = os.fstat(fd).st_size
    if size == 0:
        return b""
    with mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ) as new:
        return new[:]


def direct(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        room = mmap.mmap(-1, 1 << 20)
        count = os.preadv(fd, [room], 0)
        return room[:count]
    finally:
        os.close(fd)


class Reader:
    def __init__(self, mount):
        self.path = mount + "/model"
        self.fd = os.open(self.path, os.O_RDONLY)
        self.copy = os.open(mount + "/copy", os.O_RDWR | os.O_CREAT)
        # It stays over all changes. What is read of it is within the file.
        self.old = mmap.mmap(self.fd, MAX, mmap.MAP_PRIVATE, mmap.PROT_READ)
        self.ways = {
            "read": lambda size: self.read(),
            "pread": lambda size: whole(lambda at, n: os.pread(self.fd, n, at)),
            "preadv": lambda size: whole(lambda at, n: preadv(self.fd, at, n)),
            "sendfile": lambda size: whole(lambda at, n: sendfile(self.fd, at, n)),
            "splice": lambda size: whole(lambda at, n: splice(self.fd, at, n)),
            "copy_file_range": lambda size: whole(lambda at, n: copied(self.fd, self.copy, at, n)),
            "new mapping": lambda size: mapped(self.fd, size),
            "old mapping": lambda size: self.old[:size],
            "O_DIRECT": lambda size: direct(self.path),
        }

    def read(self):
        os.lseek(self.fd, 0, os.SEEK_SET)
        return whole(lambda at, n: os.read(self.fd, n))


def change(model, mount):
    """Makes a random change, and returns its name and the model after it."""
    path = mount + "/model"
    kind = random_.choice(["overwrite", "overwrite", "append", "append", "shorten", "lengthen", "rewrite"])
    data = bytes([random_.randrange(1, 256)]) * random_.choice([1, 10, 4096, 5000, 70_000])
    if kind == "append" and len(model) + len(data) <= MAX:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(fd, data), os.close(fd)
        return kind, model + data
    if kind == "shorten":
        size = random_.randrange(len(model) + 1)
        os.truncate(path, size)
        return kind, model[:size]
    if kind == "lengthen":
        size = min(MAX, len(model) + random_.choice([1, 4096, 50_000]))
        os.truncate(path, size)
        return kind, model + bytes(size - len(model))
    if kind == "rewrite":
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
        os.write(fd, data), os.close(fd)
        return kind, data
    at = random_.randrange(max(1, min(len(model), MAX - len(data)) + 1))
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, data, at), os.close(fd)
    return "overwrite", model[:at] + data + model[at + len(data):]


def compare():
    model = b"first" * 4000
    with open(MOUNTS[0] + "/model", "wb") as file:
        file.truncate(MAX)
    readers = [Reader(mount) for mount in MOUNTS]
    with open(MOUNTS[0] + "/model", "wb") as file:
        file.write(model)
    # Each kernel has pages of the file from the beginning.
    for reader in readers:
        assert reader.ways["sendfile"](len(model)) == model
    for number in range(CHANGES):
        at = random_.randrange(2)
        kind, model = change(model, MOUNTS[at])
        for index, reader in enumerate(readers):
            for way in random_.sample(sorted(reader.ways), 4):
                found = reader.ways[way](len(model))
                if found != model:
                    length = os.path.commonprefix([found, model])
                    sys.exit(f"seed {SEED}, change {number}: after {kind} on mount {at}, {way} on mount {index} shows "
                             f"{len(found)} bytes, not {len(model)}; they differ at byte {len(length)}")


def race():
    """A writer on mount 0 tells a number only after the write of it has returned. No reader on mount 1 sees a lower one after that."""
    path = "/race"
    record = lambda number: number.to_bytes(8, "little") * 2048
    writer = os.open(MOUNTS[0] + path, os.O_RDWR | os.O_CREAT)
    os.pwrite(writer, record(1), 0)
    told, failures, ended = [1], [], threading.Event()

    def follow(way):
        fd = os.open(MOUNTS[1] + path, os.O_RDONLY)
        old = mmap.mmap(fd, 16384, mmap.MAP_PRIVATE, mmap.PROT_READ)
        reads = {"sendfile": lambda at: way_sendfile(fd, at), "old mapping": lambda at: old[at:at + 8],
                 "pread": lambda at: os.pread(fd, 8, at)}
        out = os.memfd_create("out")

        def way_sendfile(fd, at):
            os.lseek(out, 0, os.SEEK_SET)
            return os.pread(out, os.sendfile(out, fd, at, 8), 0)

        seed = random.Random(SEED)
        while not ended.is_set():
            least, at = told[0], seed.randrange(2048) * 8
            found = int.from_bytes(reads[way](at), "little")
            if found < least:
                failures.append(f"{way} shows {found} after the write of {least} had returned")
                return

    threads = [threading.Thread(target=follow, args=[way]) for way in ["sendfile", "old mapping", "old mapping", "pread"]]
    for thread in threads:
        thread.start()
    for number in range(2, 2 + CHANGES):
        os.pwrite(writer, record(number), 0)
        told[0] = number
    ended.set()
    for thread in threads:
        thread.join()
    if failures:
        sys.exit(f"seed {SEED}: {failures}")


compare()
race()
