#!/bin/bash
# node.sh DIR I NODES SCRIPT: become node n<I> with its own network, name, processes, mounts, and root.
lab=$1 i=$2 count=$3 script=$4
here=$(cd "$(dirname "$0")" && pwd)
hostname "n$i"
for _ in $(seq 100); do ip link show eth0 > /dev/null 2>&1 && break; sleep 0.05; done
ip link set lo up
ip link set eth0 up
ip addr add "10.77.0.$((i + 1))/24" dev eth0
own=$lab/overlay/n$i
mkdir -p "$own"/{u,w,m}
mount -t overlay overlay -o "lowerdir=$lab/overlay/base:/,upperdir=$own/u,workdir=$own/w" "$own/m"
mount -t proc proc "$own/m/proc"
mount --rbind /dev "$own/m/dev"
mount --rbind /sys "$own/m/sys"
mount -t tmpfs tmpfs "$own/m/dev/shm"
mount --bind "$lab/share" "$own/m/mnt"
exec chroot "$own/m" bash "$here/role.sh" "$i" "$count" "$script"
