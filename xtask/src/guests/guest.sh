#!/bin/sh
# The first process of a guest. Its root is the machine's, read only; the kernel's command line names the guest (0 or 1), the folder that it
# shares with the machine, and what it does: make the file system, work on it until the file `stop` appears, or check it.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t tmpfs run /run && mount -t tmpfs mnt /mnt
for word in $(cat /proc/cmdline); do
    case $word in braid.*) export "braid_${word#braid.}" ;; esac
done
ended() { # WHAT STATUS
    echo "$1 $2" >>/mnt/share/said-"$braid_guest"
    halt -f
}
modules=/usr/lib/uml/modules/$(uname -r)/kernel
for module in drivers/block/virtio_blk fs/configfs/configfs fs/ocfs2/ocfs2_stackglue fs/ocfs2/cluster/ocfs2_nodemanager fs/ocfs2/dlm/ocfs2_dlm \
    fs/ocfs2/ocfs2_stack_o2cb fs/quota/quota_tree fs/jbd2/jbd2 fs/ocfs2/ocfs2; do
    if [ -f $modules/$module.ko ]; then insmod $modules/$module.ko; fi
done
mkdir /mnt/share /mnt/o
mount -t hostfs share /mnt/share -o "$braid_share" || halt -f

# The cluster: two nodes on a network of their own, which tell by a heartbeat on the volume that they live.
mount -t configfs config /sys/kernel/config
cluster=/sys/kernel/config/cluster/braid
mkdir $cluster
for node in 0 1; do
    mkdir $cluster/node/g$node
    echo 7777 >$cluster/node/g$node/ipv4_port
    echo 10.9.0.$((node + 1)) >$cluster/node/g$node/ipv4_address
    echo $node >$cluster/node/g$node/num
done
echo 1 >$cluster/node/g"$braid_guest"/local
echo o2cb >/sys/fs/ocfs2/cluster_stack
ip link set lo up
ip address add 10.9.0.$((braid_guest + 1))/24 dev vec0 && ip link set vec0 up mtu 1400
hostname g"$braid_guest"

case $braid_task in
make)
    mkfs.ocfs2 -q -F -N 2 -T mail --cluster-stack=o2cb --cluster-name=braid --fs-feature-level=default /dev/vda
    ended make $? ;;
work)
    mount -t ocfs2 /dev/vda /mnt/o || ended mount $?
    python3 "$braid_load" work "$braid_guest" "$braid_life"
    worked=$?
    umount /mnt/o || ended unmount $?
    ended work $worked ;;
check)
    fsck.ocfs2 -f -n /dev/vda || ended fsck $?
    mount -t ocfs2 /dev/vda /mnt/o || ended mount $?
    python3 "$braid_load" check "$braid_guest" "$braid_life"
    ended check $? ;;
esac
