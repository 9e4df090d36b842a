#!/bin/bash
# cluster.sh DIR NODES SCRIPT: create a cluster in DIR, run SCRIPT on n0, and remove everything when it ends.
here=$(cd "$(dirname "$0")" && pwd)
if [ "$4" != inside ]; then
    mkdir -p "$1/overlay" "$1/share"
    exec unshare -m -n -p -f --mount-proc --kill-child bash "$0" "$(cd "$1" && pwd)" "$2" "$3" inside
fi
lab=$1 count=$2 script=$3
mount --make-rprivate /
mount -t tmpfs -o size=12g tmpfs "$lab/overlay"
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
mkdir "$lab/overlay/base"
tar -xf "$lab/base.tar" -C "$lab/overlay/base"
for i in $(seq "$count" -1 0); do
    unshare -m -n -u -p -f --kill-child bash "$here/node.sh" "$lab" "$i" "$count" "$script" > "$lab/share/n$i.log" 2>&1 &
    up=$! child=
    while [ -z "$child" ]; do child=$(pgrep -P $up | head -1); sleep 0.05; done
    ip link add "ve$i" type veth peer name eth0 netns "$child"
    ip link set "ve$i" master br0
    ip link set "ve$i" up
done
wait $up
