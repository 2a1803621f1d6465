"""Writers of SQLite on two mounts: sqlite.py FOLDER-A FOLDER-B SCRATCH SECONDS BRAID ARRAY FILE-SYSTEM. The folders are one directory.

For each kind of rollback journal, two processes on each mount move amounts between accounts and add rows; one of them is killed in between
and replaced, and a device is killed. Afterwards the database must be whole, and have each row that a writer was told is committed.
"""

import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

ACCOUNTS = 50
one, two, _, seconds, braid, array = sys.argv[1:7]


def opened(folder, mode):
    base = sqlite3.connect(f"{folder}/{mode}.db", timeout=60, isolation_level=None)
    base.execute(f"pragma journal_mode={mode}")
    return base


def write(folder, mode, writer, acknowledged, failures, end):
    number = 0
    try:
        base = opened(folder, mode)
        while time.time() < end:
            base.execute("begin immediate")
            amount, (giver, taker) = random.randrange(100), random.sample(range(ACCOUNTS), 2)
            base.execute("update account set amount = amount - ? where id = ?", (amount, giver))
            base.execute("insert into row values (?, ?, ?)", (writer, number, os.urandom(random.randrange(2000))))
            base.execute("update account set amount = amount + ? where id = ?", (amount, taker))
            if random.random() < 0.1:
                base.execute("rollback")
                continue
            base.execute("commit")
            number += 1
            acknowledged.value = number
    except sqlite3.Error as error:
        failures.put(f"writer {writer} after {number} rows: {error!r}")


def run(mode):
    base = opened(one, mode)
    base.executescript("create table account (id integer primary key, amount); create table row (writer, number, bytes, primary key (writer, number))")
    base.executemany("insert into account values (?, 1000)", [(id,) for id in range(ACCOUNTS)])
    base.close()
    end, failures, writers = time.time() + float(seconds), multiprocessing.Queue(), []

    def start(writer):
        acknowledged = multiprocessing.Value("q", 0)
        process = multiprocessing.Process(target=write, args=((one, two)[writer % 2], mode, writer, acknowledged, failures, end))
        process.start()
        writers.append((writer, process, acknowledged))

    for writer in range(4):
        start(writer)
    time.sleep(float(seconds) / 3)
    os.kill(writers[1][1].pid, signal.SIGKILL)
    start(5)
    device = subprocess.run([braid, "status", "--pid", "d1", "--array", array], capture_output=True, text=True, check=True)
    os.kill(int(device.stdout), signal.SIGKILL)
    for _, process, _ in writers:
        process.join(float(seconds) + 120)
        if process.is_alive():
            process.kill()
            failures.put("a writer has not ended")
    found = []
    while not failures.empty():
        found.append(failures.get())
    for folder in (two, one):
        base = opened(folder, mode)
        checked = base.execute("pragma integrity_check").fetchall()
        if checked != [("ok",)]:
            found.append(f"integrity_check: {checked[:3]}")
        (total,) = base.execute("select sum(amount) from account").fetchone()
        if total != ACCOUNTS * 1000:
            found.append(f"the accounts have {total}")
        for writer, _, acknowledged in writers:
            (rows, highest) = base.execute("select count(*), max(number) from row where writer = ?", (writer,)).fetchone()
            if rows < acknowledged.value or rows and rows != highest + 1:
                found.append(f"writer {writer}: {rows} rows up to {highest}, and {acknowledged.value} were acknowledged")
        base.close()
    rows = [acknowledged.value for _, _, acknowledged in writers]
    print(f"{mode} failed {'; '.join(found)}" if found else f"{mode} ok rows of the writers: {rows}", flush=True)


for mode in ("delete", "truncate", "persist"):
    run(mode)
