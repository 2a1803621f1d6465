# Guarantees of NBD, tested through libnbd. `address` is that of an unwritten volume of 32 MiB.
import random

h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
h.connect_uri(address)
MIB = 1 << 20
size = h.get_size()
assert size == 32 * MIB
chance = random.Random(4711)


def allocation(offset, length):
    found = []

    def extent(context, at, entries, error):
        found.extend(zip(entries[::2], entries[1::2]))
        return 0

    h.block_status(length, offset, extent)
    return found


# The longest possible request, in one piece.
whole = chance.randbytes(size)
h.pwrite(whole, 0)
assert h.pread(size, 0) == whole

# Forced unit access, at an unaligned offset.
h.pwrite(b"forced", 12345, nbd.CMD_FLAG_FUA)
assert h.pread(6, 12345) == b"forced"

# Zeros, with and without keeping the space; then the block status.
h.zero(MIB, 0)
h.zero(MIB, MIB, nbd.CMD_FLAG_NO_HOLE)
h.trim(MIB, 2 * MIB)
assert h.pread(3 * MIB, 0) == bytes(3 * MIB)
runs = allocation(0, 4 * MIB)
assert runs[0] == (MIB, nbd.STATE_HOLE | nbd.STATE_ZERO), runs
assert not runs[1][1] & nbd.STATE_HOLE, runs
assert sum(length for length, flags in runs if flags & nbd.STATE_HOLE) == 2 * MIB, runs

# The cache command, beyond the end, and invalid requests.
h.cache(MIB, 0)
h.set_strict_mode(0)
for wrong in [lambda: h.pread(4096, size), lambda: h.pwrite(b"x", size), lambda: h.zero(4096, size - 1)]:
    try:
        wrong()
    except nbd.Error:
        continue
    raise AssertionError("a request beyond the end was served")
h.set_strict_mode(nbd.STRICT_MASK)

# Many requests in flight, at different offsets, completed in any order.
pieces = {}
cookies = []
for number in range(512):
    offset = 4 * MIB + number * 5000
    piece = chance.randbytes(5000)
    pieces[offset] = piece
    cookies.append(h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(piece)), offset))
while cookies:
    h.poll(10_000)
    cookies = [cookie for cookie in cookies if not h.aio_command_completed(cookie)]
buffers = []
for offset in pieces:
    buffer = nbd.Buffer(5000)
    buffers.append((offset, buffer, h.aio_pread(buffer, offset)))
waiting = [cookie for _, _, cookie in buffers]
while waiting:
    h.poll(10_000)
    waiting = [cookie for cookie in waiting if not h.aio_command_completed(cookie)]
for offset, buffer, _ in buffers:
    assert buffer.to_bytearray() == pieces[offset], offset

h.flush()
h.shutdown()
