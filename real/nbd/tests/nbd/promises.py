# Run by nbdsh against the exports of memory.rs; `address` is the server's URI, without an export.
import errno
import nbd

SIZE = 96 << 20
MAX = 32 << 20


def connect(export, structured=True, context=True):
    h = nbd.NBD()
    h.set_strict_mode(0)  # requests that libnbd would refuse must reach the server
    h.set_request_structured_replies(structured)
    if context:
        h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    h.connect_uri(address + export)
    return h


def fails(number, action):
    try:
        action()
    except nbd.Error as error:
        assert error.errnum == number, (error.errno, errno.errorcode[number])
    else:
        raise AssertionError("it did not fail with " + errno.errorcode[number])


def map_of(h, count, offset, flags=0):
    entries = []

    def extent(context, offset, some, error):
        entries.extend(some)

    h.block_status(count, offset, extent, flags)
    return list(zip(entries[::2], entries[1::2]))


for structured in (True, False):
    h = connect("disk", structured)
    assert h.get_structured_replies_negotiated() == structured
    assert h.get_size() == SIZE and h.can_multi_conn() and h.can_fua() and h.can_cache() and h.can_fast_zero()
    assert h.can_df() == structured

    # Any alignment and any length up to the maximum.
    for offset, length in ((0, 1), (4095, 2), (511, 4097), (12345, 1000001), (7, MAX)):
        data = bytes((offset + i * 7) % 251 for i in range(1000)) * (length // 1000 + 1)
        data = data[:length]
        h.pwrite(data, offset, nbd.CMD_FLAG_FUA)
        assert h.pread(length, offset) == data, (offset, length)
    fails(errno.EINVAL, lambda: h.pread(MAX + 1, 0))
    fails(errno.EINVAL, lambda: h.pwrite(bytes(MAX + 1), 0))
    assert len(h.pread(16, 0)) == 16, "the connection is as good as before"

    # Empty requests.
    assert h.pread(0, 0) == b""
    h.pwrite(b"", 5)
    h.zero(0, 5)
    h.trim(0, 5)
    h.cache(0, 5)

    # The end of the export.
    h.pwrite(b"z", SIZE - 1)
    assert h.pread(1, SIZE - 1) == b"z"
    fails(errno.EINVAL, lambda: h.pread(2, SIZE - 1))
    fails(errno.ENOSPC, lambda: h.pwrite(b"zz", SIZE - 1))
    fails(errno.ENOSPC, lambda: h.zero(2, SIZE - 1))
    fails(errno.EINVAL, lambda: h.trim(2, SIZE - 1))

    # Zeroes, with and without holes; every change may have the FUA flag.
    h.pwrite(b"x" * 65536, 0)
    h.zero(10000, 100, nbd.CMD_FLAG_FUA)
    h.zero(4096, 20000, nbd.CMD_FLAG_NO_HOLE)
    h.zero(4096, 30000, nbd.CMD_FLAG_FAST_ZERO)
    fails(errno.ENOTSUP, lambda: h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE))
    content = h.pread(65536, 0)
    zero = set(range(100, 10100)) | set(range(20000, 24096)) | set(range(30000, 34096))
    assert all((byte == 0) == (at in zero) for at, byte in enumerate(content))
    h.trim(4096, 40960, nbd.CMD_FLAG_FUA)
    h.cache(65536, 0)
    h.flush()

    # Unknown commands and flags are refused, without side effects.
    fails(errno.EINVAL, lambda: h.pread(1, 0, 1 << 9))
    fails(errno.EINVAL, lambda: h.flush(nbd.CMD_FLAG_NO_HOLE))
    h.shutdown()

# Block status. The export was written from its start to beyond 32 MiB, and at its very end.
h = connect("disk")
assert h.can_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
h.zero(SIZE, 0)
assert map_of(h, SIZE, 0) == [(SIZE, nbd.STATE_HOLE | nbd.STATE_ZERO)]
h.pwrite(b"data", 4096)
h.zero(4096, 16384, nbd.CMD_FLAG_NO_HOLE)
hole = nbd.STATE_HOLE | nbd.STATE_ZERO
assert map_of(h, 65536, 0) == [(4096, hole), (4096, 0), (8192, hole), (4096, 0), (45056, hole)]
assert map_of(h, 65536, 0, nbd.CMD_FLAG_REQ_ONE) == [(4096, hole)]
assert map_of(h, 10000, 5000) == [(3192, 0), (6808, hole)]
fails(errno.EINVAL, lambda: map_of(h, 0, 0))
fails(errno.EINVAL, lambda: map_of(h, 2, SIZE - 1))
plain = connect("disk", context=False)
fails(errno.EINVAL, lambda: map_of(plain, 1, 0))

# A read that is not fragmented.
chunks = []
h.pread_structured(MAX, 1, lambda data, offset, status, error: chunks.append((offset, len(data))), nbd.CMD_FLAG_DF)
assert chunks == [(1, MAX)], chunks

# What one connection wrote is visible to every other at once.
others = [connect("disk") for _ in range(4)]
for index, other in enumerate(others):
    other.pwrite(bytes([index]) * 100, index * 50)
    for reader in others:
        assert reader.pread(100, index * 50) == bytes([index]) * 100

# Many in flight.
buffers = [nbd.Buffer.from_bytearray(bytearray([i % 256]) * 4096) for i in range(1000)]
cookies = [h.aio_pwrite(buffer, i * 4096) for i, buffer in enumerate(buffers)]
while cookies:
    h.poll(-1)
    cookies = [cookie for cookie in cookies if not h.aio_command_completed(cookie)]
assert all(h.pread(4096, i * 4096) == bytes([i % 256]) * 4096 for i in range(1000))

# An odd size, and a failing volume.
odd = connect("odd")
assert odd.get_size() == 10007
odd.pwrite(b"end", 10004)
assert odd.pread(10007, 0)[-3:] == b"end"
for structured in (True, False):
    broken = connect("broken", structured)
    fails(errno.EIO, lambda: broken.pread(4096, 0))
    fails(errno.EIO, lambda: broken.pwrite(b"x", 0))
    fails(errno.EIO, broken.flush)
