#!/bin/bash
# Latency of a Ceph cluster on this machine, one request at a time: a monitor, a manager and five OSDs on files, in a network namespace
# of its own. Nobody else can reach it, and everything ends with it.
#
#   apt-get install -y --no-install-recommends ceph-mon ceph-mgr ceph-osd ceph-common fio
#   peers/ceph/depth-one.sh FOLDER SECONDS [DEPTH]      as root; FOLDER is made, and must not exist
#
# fio writes and reads 4 KiB at random through librbd without its cache: an image with two copies, and one with an erasure code 4+1.
set -euo pipefail
[ -n "${IN_NAMESPACE:-}" ] || exec env IN_NAMESPACE=1 unshare --net --pid --fork --mount-proc "$0" "$@"
folder=$(realpath -m "$1") seconds=$2 depth=${3:-1}
[ ! -e "$folder" ] || { echo "$folder exists" >&2; exit 1; }
mkdir -p "$folder/mon" "$folder/mgr" "$folder/run"
ip link set lo up
export CEPH_CONF=$folder/ceph.conf
cluster=$(cat /proc/sys/kernel/random/uuid)
cat > "$CEPH_CONF" <<END
[global]
fsid = $cluster
mon host = 127.0.0.1:6789
auth cluster required = none
auth service required = none
auth client required = none
public addr = 127.0.0.1
run dir = $folder/run
log file = $folder/\$name.log
admin socket = $folder/run/\$name.asok
mon data = $folder/mon
mgr data = $folder/mgr
osd data = $folder/osd\$id
osd crush chooseleaf type = 0
osd crush update on start = false
osd class update on start = false
osd pool default size = 2
osd pool default min size = 1
bluestore block size = 6442450944
[client]
rbd cache = false
END
say() { "$@" >> "$folder/setup.log" 2>&1; }
say monmaptool --create --add a 127.0.0.1 --fsid "$cluster" "$folder/monmap"
say ceph-mon --mkfs -i a --monmap "$folder/monmap"
say ceph-mon -i a -f &
sleep 3
say ceph-mgr -i x -f &
for _ in 0 1 2 3 4; do
    own=$(cat /proc/sys/kernel/random/uuid)
    id=$(ceph osd new "$own" 2>> "$folder/setup.log")
    mkdir "$folder/osd$id"
    say ceph osd crush add "osd.$id" 1.0 root=default "host=h$id"
    say ceph-osd -i "$id" --mkfs --osd-uuid "$own"
    # It ends if it meets the monitor before that knows it.
    (for _ in 1 2 3 4 5; do say ceph-osd -i "$id" -f || true; sleep 2; done) &
done
for _ in $(seq 60); do
    ceph osd stat | grep -q ' 5 up' && break
    sleep 1
done
say ceph osd pool create copies 32 32 replicated
say ceph osd erasure-code-profile set parity k=4 m=1 crush-failure-domain=osd
say ceph osd pool create parity 32 32 erasure parity
say ceph osd pool set parity allow_ec_overwrites true
for pool in copies parity; do say ceph osd pool application enable "$pool" rbd; done
say rbd create copies/copies --size 1024
say rbd create copies/parity --size 1024 --data-pool parity
for image in copies parity; do
    rbd="--ioengine=rbd --clientname=admin --pool=copies --rbdname=$image --size=512M"
    say fio --name=fill $rbd --rw=write --bs=1M --iodepth=8
    for load in randwrite randread; do
        fio --name=$load $rbd --rw=$load --bs=4k --iodepth="$depth" --runtime="$seconds" --time_based --output-format=terse \
            2>> "$folder/setup.log" | awk -F';' -v image="$image" -v load="$load" \
            '{ w = load == "randwrite"; print image, load, (w ? $49 : $8) " a second", "mean " (w ? $81 : $40) " us" }'
    done
done
