"""The load of a guest on the shared file system /mnt/o: load.py work GUEST LIFE, until /mnt/share/stop exists, and load.py check GUEST LIVES.

Each of two writers appends records to one log, under flock, as OCFS2's own appends are not atomic; a third replaces files of its guest and reads
those of the other one. What is durable is acknowledged in /mnt/share.
"""

import fcntl
import glob
import hashlib
import multiprocessing
import os
import random
import sys

SHARED, SHARE = "/mnt/o", "/mnt/share"
WRITERS, FILES = 2, 16


def acknowledge(guest, life, writer, text):
    with open(f"{SHARE}/done-{guest}-{life}-{writer}", "a") as file:
        file.write(f"{text}\n")


def record(guest, life, writer, number):
    name = f"{guest}-{life}-{writer}-{number}"
    return f"{name} {hashlib.sha256(name.encode()).hexdigest() * (1 + number * 7 % 50)} ."


def append(guest, life, writer):
    number = 0
    log = os.open(f"{SHARED}/log", os.O_WRONLY | os.O_CREAT, 0o644)
    while not os.path.exists(f"{SHARE}/stop"):
        fcntl.flock(log, fcntl.LOCK_EX)
        line = f"\n{record(guest, life, writer, number)}".encode()
        if os.pwrite(log, line, os.fstat(log).st_size) != len(line):
            raise OSError("a short write")
        os.fsync(log)
        fcntl.flock(log, fcntl.LOCK_UN)
        acknowledge(guest, life, writer, number)
        number += 1


def content(guest, life, number):
    name = f"{guest} {life} {number}\n".encode()
    chance = random.Random(name)
    return name + chance.randbytes(chance.randrange(200_000))


def whole(path):
    """The life and number of a file whose content is as it was written; None if there is no such file."""
    try:
        with open(path, "rb") as file:
            read = file.read()
    except FileNotFoundError:
        return None
    guest, life, number = (int(word) for word in read.split(b"\n", 1)[0].split())
    if read != content(guest, life, number):
        raise ValueError(f"{path} has not what was written to it")
    return life, number


def replace(guest, life):
    number = 0
    while not os.path.exists(f"{SHARE}/stop"):
        path = f"{SHARED}/{guest}-{number % FILES}"
        with open(f"{SHARED}/{guest}-new", "wb") as file:
            file.write(content(guest, life, number))
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{SHARED}/{guest}-new", path)
        folder = os.open(SHARED, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        acknowledge(guest, life, "files", number)
        number += 1
        whole(f"{SHARED}/{1 - guest}-{random.randrange(FILES)}")


def work(guest, life):
    tasks = [(append, (guest, life, writer)) for writer in range(WRITERS)] + [(replace, (guest, life))]
    processes = [multiprocessing.Process(target=task, args=words) for task, words in tasks]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return any(process.exitcode for process in processes)


def check(lives):
    """`lives`: how many lives guests had, of which all but two ended in the middle of a record."""
    wrong, lines, broken = [], set(), 0
    with open(f"{SHARED}/log", "rb") as log:
        for line in log.read().split(b"\n")[1:]:
            try:
                guest, life, writer, number = (int(word) for word in line.split(b" ", 1)[0].split(b"-"))
                torn = line.decode() != record(guest, life, writer, number)
            except (ValueError, UnicodeDecodeError):
                torn = True
            if torn:
                broken += 1
            elif (guest, life, writer, number) in lines:
                wrong.append(f"record {guest}-{life}-{writer}-{number} is there twice")
            else:
                lines.add((guest, life, writer, number))
    if broken > (lives - 2) * WRITERS:
        wrong.append(f"{broken} records are torn")
    count, newest = 0, {}
    for path in glob.glob(f"{SHARE}/done-*"):
        guest, life, writer = path.rsplit("/done-", 1)[1].split("-")
        with open(path) as file:
            numbers = [int(line) for line in file.read().split("\n")[:-1]]
        count += len(numbers)
        for number in numbers:
            if writer == "files":
                slot = (int(guest), number % FILES)
                newest[slot] = max(newest.get(slot, (0, 0)), (int(life), number))
            elif (int(guest), int(life), int(writer), number) not in lines:
                wrong.append(f"record {guest}-{life}-{writer}-{number} was acknowledged and is not there")
    for (guest, slot), (life, number) in newest.items():
        found = whole(f"{SHARED}/{guest}-{slot}")
        if found is None or found < (life, number):
            wrong.append(f"file {guest}-{slot} is {found}, and {life}, {number} was acknowledged")
    with open(f"{SHARE}/verdict", "w") as file:
        file.write("\n".join([f"{count} acknowledged, {broken} records that were never acknowledged are torn", *wrong[:20]]))
    return bool(wrong)


task, guest, life = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.exit(work(guest, life) if task == "work" else check(life))
