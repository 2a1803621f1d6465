# Pieces of 1 MiB of a volume, for nbdsh: `h` is its connection.
import errno, random


def piece(number, round):
    return random.Random(number << 8 | round).randbytes(1 << 20)


def put(numbers, round):
    for number in numbers:
        h.pwrite(piece(number, round), number << 20)


def expect(numbers, round):
    for number in numbers:
        assert h.pread(1 << 20, number << 20) == piece(number, round), f"piece {number}"


# Writes pieces from this one on until the disk is full. Prints the number of the one that was refused.
def fill(first):
    for number in range(first, 128):
        try:
            put([number], 0)
        except nbd.Error as error:
            assert error.errnum == errno.ENOSPC, error
            return print(number)
    raise SystemExit("the disk never gets full")
