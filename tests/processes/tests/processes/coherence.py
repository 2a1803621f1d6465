"""Every way in which a program gets bytes of a file, on two mounts, against a model: after each change that has returned, on either mount,
every way on both mounts shows the content of the model. Arguments: the two mounts, a seed, the number of changes, and for how many seconds
programs contend."""
import ctypes, mmap, os, random, shutil, signal, struct, subprocess, sys, threading, time

MOUNTS, SEED, CHANGES, SECONDS = sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
MAX = 300_000
# No call of a program that contends takes longer, in seconds.
WAIT_MAX = 30
LIBC = ctypes.CDLL(None, use_errno=True)
random_ = random.Random(SEED)
OUT = os.memfd_create("out")
# The file that stays open for writing on each mount.
WRITERS = {}


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


def tee(fd, at, length):
    (one, to_one), (other, to_other) = os.pipe(), os.pipe()
    try:
        length = os.splice(fd, to_one, min(length, 1 << 15), offset_src=at)
        if length == 0:
            return b""
        count = LIBC.tee(one, to_other, length, 0)
        copy, original = os.read(other, length), os.read(one, length)
        assert count == length and copy == original, (count, length)
        return copy
    finally:
        [os.close(end) for end in (one, to_one, other, to_other)]


def copied(fd, to, at, length):
    return os.pread(to, os.copy_file_range(fd, to, length, at, 0), 0)


def vectors(read):
    """Reads into two buffers."""

    def both(fd, at, length):
        buffers = [bytearray(5000), bytearray(length)]
        count = read(fd, buffers, at)
        return b"".join(buffers)[:count]

    return both


def readv(fd, buffers, at):
    os.lseek(fd, at, os.SEEK_SET)
    return os.readv(fd, buffers)


class Ring:
    """Reads and writes by io_uring, one at a time."""

    SETUP, ENTER, READ, WRITE = 425, 426, 22, 23

    def __init__(self):
        parameters = ctypes.create_string_buffer(120)
        self.fd = LIBC.syscall(Ring.SETUP, 2, parameters)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "io_uring")
        words = struct.unpack("30I", parameters)
        self.at_tail, at_array, self.at_head, at_entries = words[11], words[16], words[20], words[25]
        self.ring = mmap.mmap(self.fd, max(at_entries + 64, at_array + 8), mmap.MAP_SHARED, offset=0)
        self.requests = mmap.mmap(self.fd, 128, mmap.MAP_SHARED, offset=0x10000000)
        self.answers, self.mask = at_entries, words[22]
        # The second ring begins where the first does.
        assert words[5] & 1, "one mapping has both rings"
        struct.pack_into("2I", self.ring, at_array, 0, 0)

    def word(self, at):
        return struct.unpack_from("I", self.ring, at)[0]

    def request(self, code, fd, at, room):
        struct.pack_into("BBHiQQIIQ", self.requests, 0, code, 0, 0, fd, at, ctypes.addressof(room), len(room), 0, 0)
        struct.pack_into("I", self.ring, self.at_tail, (self.word(self.at_tail) + 1) & 0xFFFFFFFF)
        assert LIBC.syscall(Ring.ENTER, self.fd, 1, 1, 1, None, 0) == 1
        head = self.word(self.at_head)
        _, count, _ = struct.unpack_from("QiI", self.ring, self.answers + (head & self.word(self.mask)) * 16)
        struct.pack_into("I", self.ring, self.at_head, (head + 1) & 0xFFFFFFFF)
        return count

    def read(self, fd, at, length):
        room = ctypes.create_string_buffer(length)
        count = self.request(Ring.READ, fd, at, room)
        assert count >= 0, os.strerror(-count)
        return room[:count]


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


try:
    RING = Ring()
except OSError as error:
    RING = print(f"skipped: {error}")


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
            "readv": lambda size: whole(lambda at, n: vectors(readv)(self.fd, at, n)),
            "preadv": lambda size: whole(lambda at, n: vectors(os.preadv)(self.fd, at, n)),
            "preadv2": lambda size: whole(lambda at, n: vectors(lambda fd, buffers, at: os.preadv(fd, buffers, at, os.RWF_HIPRI))(self.fd, at, n)),
            "sendfile": lambda size: whole(lambda at, n: sendfile(self.fd, at, n)),
            "splice": lambda size: whole(lambda at, n: splice(self.fd, at, n)),
            "tee": lambda size: whole(lambda at, n: tee(self.fd, at, n)),
            "copy_file_range": lambda size: whole(lambda at, n: copied(self.fd, self.copy, at, n)),
            "new mapping": lambda size: mapped(self.fd, size),
            "old mapping": lambda size: self.old[:size],
            "O_DIRECT": lambda size: direct(self.path),
        }
        if RING:
            self.ways["io_uring"] = lambda size: whole(lambda at, n: RING.read(self.fd, at, n))

    def read(self):
        os.lseek(self.fd, 0, os.SEEK_SET)
        return whole(lambda at, n: os.read(self.fd, n))


def change(model, mount):
    """Makes a random change, and returns its name and the model after it."""
    path = mount + "/model"
    kind = random_.choice(["overwrite", "overwrite", "beyond", "append", "append", "shorten", "lengthen", "rewrite"])
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
    if kind == "beyond":
        at = min(len(model) + random_.choice([1, 4096, 50_000]), MAX - len(data))
    # Through a file that stays open, or one that is opened now.
    kept = WRITERS.setdefault(mount, None) or os.open(path, os.O_RDWR)
    os.pwrite(kept, data, at)
    WRITERS[mount] = kept if random_.randrange(4) else os.close(kept)
    return f"write at {at}", model[:at].ljust(at, b"\0") + data + model[at + len(data):]


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
            if (end := os.lseek(reader.fd, 0, os.SEEK_END)) != len(model):
                sys.exit(f"seed {SEED}, change {number}: after {kind} on mount {at}, the end on mount {index} is {end}, not {len(model)}")
            for way in random_.sample(sorted(reader.ways), 4):
                found = reader.ways[way](len(model))
                if found != model:
                    length = os.path.commonprefix([found, model])
                    sys.exit(f"seed {SEED}, change {number}: after {kind} on mount {at}, {way} on mount {index} shows "
                             f"{len(found)} bytes, not {len(model)}; they differ at byte {len(length)}")


def executed():
    """What a program does that one mount executes is what either mount has written last: a script, and a binary whose pages are mapped."""
    script, binary = "/script", "/binary"
    true, false = [open(shutil.which(name), "rb").read() for name in ("true", "false")]
    length = max(len(true), len(false))
    for name in (script, binary):
        os.close(os.open(MOUNTS[0] + name, os.O_WRONLY | os.O_CREAT, 0o755))
    for number in range(12):
        writer, runner = MOUNTS[number % 2], MOUNTS[(number + 1 + number // 4) % 2]
        for name, content in ((script, b"#!/bin/sh\nexit %d\n" % number), (binary, [true, false][number // 2 % 2].ljust(length, b"\0"))):
            with open(writer + name, "r+b") as file:
                file.write(content)
        for name, status in ((script, number), (binary, number // 2 % 2)):
            found = subprocess.run([runner + name]).returncode
            if found != status:
                sys.exit(f"{name} ends with {found} on {runner}, though {writer} has written one that ends with {status}")


def race():
    """A writer on mount 0 tells a number only after the write of it has returned. No reader, on either mount, sees a lower one after that."""
    path = "/race"
    record = lambda number: number.to_bytes(8, "little") * 2048
    writer = os.open(MOUNTS[0] + path, os.O_RDWR | os.O_CREAT)
    os.pwrite(writer, record(1), 0)
    told, failures, ended = [1], [], threading.Event()

    def follow(mount, way):
        fd = os.open(mount + path, os.O_RDONLY)
        old = mmap.mmap(fd, 16384, mmap.MAP_PRIVATE, mmap.PROT_READ)
        out = os.memfd_create("out")

        def sent(at):
            os.lseek(out, 0, os.SEEK_SET)
            return os.pread(out, os.sendfile(out, fd, at, 8), 0)

        reads = {"sendfile": sent, "old mapping": lambda at: old[at:at + 8], "pread": lambda at: os.pread(fd, 8, at)}
        seed = random.Random(SEED)
        while not ended.is_set():
            least, at = told[0], seed.randrange(2048) * 8
            found = int.from_bytes(reads[way](at), "little")
            if found < least:
                failures.append(f"{way} on {mount} shows {found} after the write of {least} had returned")
                return

    ways = [(1, "sendfile"), (1, "old mapping"), (1, "old mapping"), (1, "pread"), (0, "sendfile"), (0, "old mapping")]
    threads = [threading.Thread(target=follow, args=[MOUNTS[mount], way]) for mount, way in ways]
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


def follow():
    """A log grows on mount 0. Programs on mount 1 look how long it is, and send or map what is new, up to there: nothing fails or is missing."""
    path, until, children = "/log", time.monotonic() + SECONDS, []
    log = os.open(MOUNTS[0] + path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, b"first")
    for slot in range(5):
        if child := os.fork():
            children.append(child)
            continue
        fd, out, at = os.open(MOUNTS[1] + path, os.O_RDONLY), os.memfd_create("out"), 0
        while time.monotonic() < until:
            size = os.fstat(fd).st_size
            if slot < 3 and size > at:
                count = os.sendfile(out, fd, at, size - at)
                assert count > 0, f"sendfile at {at} gives nothing of {size} bytes"
                at += count
            elif slot >= 3:
                with mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ) as new, memoryview(new) as bytes_:
                    # A page that can't be read is an error of this call, not a signal.
                    os.pwrite(out, bytes_[(size - 1) // 4096 * 4096:], 0)
        os._exit(0)
    while time.monotonic() < until:
        os.write(log, b"one more line of the log\n" * 4)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0, "a program that follows a growing log fails"


def polled():
    """A program that only polls the end of a file, and looks at nothing else, sees in a moment what another mount has appended."""
    path = "/polled"
    for start in (0, 5000):
        with open(MOUNTS[0] + path, "wb") as file:
            file.write(bytes(start))
        fd, until = os.open(MOUNTS[1] + path, os.O_RDONLY), time.monotonic() + WAIT_MAX
        with open(MOUNTS[0] + path, "ab") as file:
            file.write(b"more")
        while not sendfile(fd, start, 100):
            assert time.monotonic() < until, f"sendfile at the old end {start} gives nothing"
            time.sleep(0.005)
        os.close(fd)


def closed():
    """The time of the last write is published when the file is closed, before `close` returns."""
    source, made = "/source", "/made"
    for number in range(30):
        writer, other = MOUNTS[number % 2], MOUNTS[1 - number % 2]
        open(writer + source, "wb").write(b"first")
        open(other + made, "wb").close()
        fd = os.open(writer + source, os.O_WRONLY)
        os.pwrite(fd, b"again", 0), os.close(fd)
        assert os.stat(other + source).st_mtime_ns > os.stat(other + made).st_mtime_ns, f"round {number}"


def failed():
    """An asynchronous write that fails cuts nothing off that another mount has appended."""
    path, sizes = "/failed", []
    for flags in (os.O_RDWR, os.O_WRONLY):
        with open(MOUNTS[0] + path, "wb") as file:
            file.write(bytes(8192))
        fd = os.open(MOUNTS[1] + path, flags)
        with open(MOUNTS[0] + path, "ab") as file:
            file.write(bytes(20_000))
        count = RING.request(Ring.WRITE, fd, 1 << 50, ctypes.create_string_buffer(100))
        sizes.append((count < 0, os.stat(MOUNTS[0] + path).st_size))
        os.close(fd)
    assert sizes == [(True, 28_192)] * 2, sizes


def contend():
    """Programs on both mounts read the same files through pages, and write, truncate and replace them. No call takes longer than a bound."""
    names = [f"/contended{number}" for number in range(2)]
    for name in names:
        with open(MOUNTS[0] + name, "wb") as file:
            file.write(b"c" * MAX)
    # When each program has begun its call; zero between calls.
    begun = mmap.mmap(-1, 4096)

    def call(slot, function):
        struct.pack_into("d", begun, slot * 8, time.monotonic())
        try:
            return function()
        finally:
            struct.pack_into("d", begun, slot * 8, 0)

    until = time.monotonic() + SECONDS

    def seen(fd):
        try:
            mapped(fd, 0)
        except ValueError:
            pass  # It has become shorter since it was looked at.

    def program(slot, mount, round_):
        seed = random.Random((SEED, slot, round_).__repr__())
        while time.monotonic() < until:
            path = mount + seed.choice(names)
            fd = call(slot, lambda: os.open(path, os.O_RDWR))
            at = seed.randrange(MAX)
            do = {
                "sendfile": lambda: sendfile(fd, at, 100_000),
                "mapped": lambda: seen(fd),
                "read": lambda: os.pread(fd, 50_000, at),
                "copy": lambda: shutil.copyfile(path, f"{mount}/copy{slot}"),
                "write": lambda: os.pwrite(fd, b"w" * seed.choice([10, 70_000]), at),
                "append": lambda: os.pwrite(fd, b"a" * 5000, os.fstat(fd).st_size % MAX),
                "truncate": lambda: os.ftruncate(fd, at),
            }
            for _ in range(4):
                call(slot, do[seed.choice(sorted(do))])
            call(slot, lambda: os.close(fd))

    def isolated(slot, round_):
        child = os.fork()
        if child == 0:
            program(slot, MOUNTS[slot % 2], round_)
            os._exit(0)
        return child

    children, rounds = {isolated(slot, 0): slot for slot in range(6)}, 0
    while children:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended:
            # A mapping has no pages behind the end of a file that is shorter now.
            assert status in (0, signal.SIGBUS), status
            slot, rounds = children.pop(ended), rounds + 1
            struct.pack_into("d", begun, slot * 8, 0)
            if time.monotonic() < until:
                children[isolated(slot, rounds)] = slot
        for child, slot in children.items():
            since = struct.unpack_from("d", begun, slot * 8)[0]
            if since and time.monotonic() - since > WAIT_MAX:
                place = open(f"/proc/{child}/stack").read() if os.geteuid() == 0 else ""
                [os.kill(other, signal.SIGKILL) for other in children]
                sys.exit(f"seed {SEED}: a program on mount {slot % 2} has waited for more than {WAIT_MAX} s:\n{place}")
        time.sleep(0.05)


compare()
executed()
race()
follow()
polled()
closed()
if RING:
    failed()
contend()
