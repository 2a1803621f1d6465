# What the commands of transcripts use. Each command is run by a bash of its own, in the folder of its section.
set -o pipefail
TRANSCRIPTS=$(dirname "${BASH_SOURCE[0]}")
PATH=$PWD/bin:$PATH
export BRAID_ARRAY=$PWD/array
if [ -e mnt ]; then BRAID_ARRAY=$PWD/mnt/array; fi

# The address of a volume for NBD clients of this user; and that of the first volume on a port.
at() { echo "nbd+unix:///$1?socket=$BRAID_ARRAY/run/nbd"; }
uri() { echo "nbd://127.0.0.1:$(port)/vol0"; }

# The program, with output for programs, and with output for people.
braid() { command braid --json "$@"; }
told() { command braid "$@"; }

# Starts the array with a short lease: in the foreground, in which it is refused, or in the background.
up() { braid up --dir "$BRAID_ARRAY" --port 0 --lease 1s --yes $(cat up.options 2> /dev/null || echo "$BRAID_UP_OPTIONS") "$@"; }
start() { up --background "$@"; }
# From then on each device has a process of its own, which can be stopped and killed.
in_processes() { echo --processes > up.options; }
# Five devices that are small enough to be checked block by block quickly.
small() { start --size 64MiB --volume vol0:32MiB "$@"; }
# The processes of the array.
pids() { braid status | value '*[it["pid"] for it in [d, d["monitor"], *d["devices"]] if it["pid"]]' | tee processes; }
# Ends the array, and waits until all its processes have ended.
down() {
    local pid
    pids > status.out && braid down && for pid in $(cat processes); do tail --pid="$pid" -f /dev/null; done
}
# Runs a server, whose process is in the file `server`, and its exit status in the file `ended`.
by_hand() {
    bin/braid --json "$@" &
    echo $! > server
    wait $!
    echo $? > ended
}
# Ends a server, and the array in the foreground with these options, by a signal: both end well, and no process is left.
end_by() {
    local up host pid
    bin/braid --json up --dir "$BRAID_ARRAY" --port 0 --lease 1s --yes "${@:2}" > ready 2> errors < /dev/null & up=$!
    until grep -q '"ready":true' ready; do sleep 0.05; done
    bin/braid --json nbd --listen "unix:$PWD/other" > server.ready 2> errors < /dev/null & host=$!
    until grep -q '"ready":true' server.ready; do sleep 0.05; done
    pids && kill "-$1" $host && wait $host && kill "-$1" $up && wait $up && for pid in $(cat processes); do tail --pid="$pid" -f /dev/null; done
}

# A file of so many random bytes, such as 1M.
noise() { head -c "$2" /dev/urandom > "$1"; }
# A file of the size of a small volume, with a hole in the middle.
image() { noise image 8M && truncate --size=24M image && head -c 8M /dev/urandom >> image; }
# Commands of qemu-io.
qemu_io() {
    local commands=() command
    for command in "$@"; do commands+=(-c "$command"); done
    qemu-io -f raw "${commands[@]}" "$(uri)"
}
# Verifies what two jobs of fio write.
verify() {
    echo "BRAID_SEED=${BRAID_SEED:=$RANDOM}"
    fio --name=verify --ioengine=nbd --uri="$(uri)" --rw=randrw --bsrange=512-256k --bs_unaligned --size=15m --offset_increment=16m \
        --numjobs=2 --thread --iodepth=32 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randseed=$BRAID_SEED
}
# Writes a file to the beginning of the first volume; and compares it with what is there.
write() { nbdcopy "$1" "$(at vol0)"; }
reads() { nbdcopy "$(at vol0)" volume.read && cmp -n "$(stat -c %s "$1")" "$1" volume.read; }
# Python with a connection to the first volume, `h`, and what `pieces.py` defines.
pieces() { nbdsh -u "$(at vol0)" -c "$(cat "$TRANSCRIPTS/pieces.py")" -c "$1"; }
# Compares all stripes of a volume with their parity, and all units with their reconstruction.
sound() { told volume check "$1" --reconstruct | grep -E '^([1-9][0-9]*) of \1 stripes checked, 0 bad, 0 unreadable$'; }
# The first volume as the file fuse/nbd, and the end of that.
as_file() {
    nbdfuse --pidfile fuse.pid fuse "$(uri)" > fuse.out 2>&1 < /dev/null &
    until [ -s fuse.pid ]; do sleep 0.05; done
}
no_file() { umount fuse && tail --pid="$(cat fuse.pid)" -f /dev/null && rm fuse.pid; }
# The port on which `braid up` serves NBD clients.
port() { braid status | sed 's|.*nbd://127.0.0.1:\([0-9]*\)/.*|\1|'; }
# The process of a participant, such as d3.
pid() { told status --pid "$1"; }
# Changes the description of the array, d, by statements of Python.
describe() {
    python3 - "$1" <<'END'
import json, os, sys
path = os.environ["BRAID_ARRAY"] + "/array.json"
d = json.load(open(path))
exec(sys.argv[1])
json.dump(d, open(path + ".next", "w"))
os.rename(path + ".next", path)
END
}
# Inverts a byte of a file; once more restores it.
damage() {
    python3 - "$1" "$2" <<'END'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)[0]
    file.seek(int(sys.argv[2]))
    file.write(bytes([byte ^ 0xff]))
END
}

# A bench, which leaves nothing behind, whatever it ends with.
bench() {
    mkdir bench && braid bench --scratch bench "$@"
    local status=$?
    rmdir bench && return $status
}

# An expression of Python on the JSON on standard input, d, such as d["epoch"].
value() { python3 -c "import json, sys; d = json.load(sys.stdin); print($1)"; }
# Runs the program for some seconds, then interrupts it.
for_seconds() { timeout --preserve-status --signal=INT "$1" braid --json "${@:2}"; }
# The kinds of the events about a device, in order.
happened() { braid events | value "*[e['kind'] for e in d['events'] if e.get('device') == $1], sep='\n'"; }
# A device dies for good: its disk is taken away, and its process killed.
die() {
    local process
    process=$(pid "d$1") && mv "array/device-$1.braid" "gone-$1" && kill -KILL "$process"
}
# Raises the number of the format in the superblocks of a device by so many.
raise_format() {
    python3 - "$1" "$2" <<'END'
import sys
def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return (crc ^ 0xffffffff).to_bytes(4, "little")
with open(sys.argv[1], "r+b") as file:
    for copy in 0, 4096:
        file.seek(copy)
        block = bytearray(file.read(512))
        block[8] += int(sys.argv[2])
        file.seek(copy)
        file.write(block[:508] + crc32c(block[:508]))
END
}
# What a cluster manager asks the fence agent, option by option.
agent() { printf '%s\n' "$@" "array=$BRAID_ARRAY" nodename=b | command braid host fence-agent; }
# Kills all processes of the array.
crash() { pids > status.out && kill -KILL $(cat processes) && until all_are_gone; do sleep 0.05; done; }

# A small array with content in the whole volume. Device 1 misses half of the writes, and is resynchronised.
written() {
    small && noise content 32M && head -c 16M content > half && write half && braid device fail 1 && write content \
        && braid device readmit 1 --wait
}
# The first volume is healthy, and has this content.
all_there() { braid status | grep -q '"state":"healthy"' && reads "$1" && sound vol0; }
# The copies of the description at the end of a small device's file, and their replacement.
copies() { tail -c +67108865 "array/device-$1.braid"; }
set_copies() { truncate --size=64M "array/device-$1.braid" && cat "$2" >> "array/device-$1.braid"; }
copies_are_written() {
    local revision device
    revision="\"revision\":$(value 'd["revision"]' < array/array.json),"
    for device in 0 1 2 3 4; do copies $device | grep -aqF "$revision" || return 1; done
}
# The processes of `pids` have ended.
all_are_gone() { ! kill -0 $(cat processes) 2> kill.errors; }

# A small file system at `mnt` with so many inodes, in which the array is from then on.
disk() { truncate --size=160M disk && mkfs.ext4 -q -N "$1" disk && mkdir mnt && mount -o loop disk mnt; }
# Runs a command while the folder `tiny` is a disk of its own, in which it leaves nothing behind.
on_a_tiny_disk() {
    mkdir tiny && unshare --mount sh -c 'mount -t tmpfs -o size=256k tmpfs tiny && "$@"; status=$?; ls tiny; exit $status' sh "$@"
}

# An array whose file system is mounted in the folders a and b.
mounts() { start --size 512MiB --volume vol0:1MiB --fs home && mkdir a b && mount_in a && mount_in b; }
mount_in() { braid fs mount home "$PWD/$1" | value 'd["mounts"][0]["pid"]' > "$1.pid"; }
# Mounts it in the foreground, writes a file there, and interrupts the mount.
for_a_while_in() {
    bin/braid --json fs mount home "$PWD/$1" --foreground > ready &
    until grep ready ready; do sleep 0.05; done
    echo x > "$1/x" && kill -INT $! && wait $!
}
# Runs a program that has this number in a container.
in_container() {
    unshare --pid --fork --kill-child --mount-proc sh -c 'echo $0 > /proc/sys/kernel/ns_last_pid; "$@" & wait' $(($1 - 1)) "${@:2}"
}
# The folders here in which it is mounted.
mounted() { sed -n "s|.* $PWD/\([^ ]*\) fuse.braid .*|\1|p" /proc/self/mounts | sort; }
# The file system contains no error, and all mounts end: also right after a check, their hosts disconnect.
end() {
    local before
    before=$(late) && told fs check home && down && [ -z "$(mounted)" ] && tail --pid="$(cat a.pid)" -f /dev/null \
        && tail --pid="$(cat b.pid)" -f /dev/null && [ "$(late)" = "$before" ]
}
late() { cat array/logs/* | grep -c 'could not disconnect within 10s' || true; }
# Waits until the file system is served by another process than that in the file `before`, for less than so many seconds.
served_within() {
    SECONDS=0
    until braid fs status home | grep -q '"state":"serving"' && ! pid 'mds home' | cmp -s before -; do sleep 0.05; done
    [ $SECONDS -lt "$1" ]
}
# Creates a file system twice, the second time after so many seconds: one command succeeds, and the other one says that there is one.
create_twice() {
    braid fs create home --size 64MiB > first &
    sleep "$1"
    braid fs create home --size 64MiB > second
    wait $!
    cat first second | grep -c '"code":"file-system-exists"' | grep -qx 1 && cat first second | grep -c '"error"' | grep -qx 1
}
# The folder `own` in the namespace of the process that has mounted there.
own() { echo "/proc/$(cat own.pid)/root$PWD/own"; }

# A finding of this check of the doctor.
found() { told doctor --verbose > doctor.out; grep -A2 "^$2" doctor.out | grep -B2 "check: $1"; }
# With this content of a file in the array's folder, or without the file, `braid up` says why it can't start, and the doctor has found it before.
refused_with() {
    mv "array/$1" moved && { [ "$2" = none ] || cp "$2" "array/$1"; }
    braid doctor > report
    [ $? = 1 ] && ! start > refusal && rm -f "array/$1" && mv moved "array/$1" && python3 - <<'END'
import json
error = json.load(open("refusal"))["error"]
start = [check for check in json.load(open("report"))["checks"] if check["name"] == "start"][0]
errors = [finding["text"] for finding in start["findings"] if finding["severity"] == "error"]
assert errors[0] == f"can't be started: {error['message']}" and error["hint"], (errors, error)
END
}
# The daemons that have crashed, by the event log.
crashes() {
    braid events | value '*[[e["process"], e.get("device"), e["figures"]["pid"], e["figures"]["signal"]]
        for e in d["events"] if e["kind"] == "daemon-crashed"], sep="\n"'
}

# The help of a command is more than some lines.
has_help() { told "$@" --help > help && grep -q 'Usage: braid' help && [ "$(wc -l < help)" -gt 8 ]; }
