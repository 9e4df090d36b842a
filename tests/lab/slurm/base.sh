#!/bin/bash
# base.sh DIR: create DIR/base.tar, a layer with Slurm's packages, in a separate mount namespace.
set -e
here=$(cd "$(dirname "$0")" && pwd)
if [ "$2" != inside ]; then
    mkdir -p "$1/overlay"
    exec unshare -m -p -f bash "$0" "$(cd "$1" && pwd)" inside
fi
mount --make-rprivate /
mount -t tmpfs tmpfs "$1/overlay"
cd "$1/overlay"
mkdir u w m
mount -t overlay overlay -o "lowerdir=/,upperdir=$PWD/u,workdir=$PWD/w" m
mount -t proc proc m/proc
mount --rbind /dev m/dev
export DEBIAN_FRONTEND=noninteractive
chroot m apt-get update -qq
install() { chroot m apt-get install -y -qq --no-install-recommends "$@"; }
install slurmctld slurmd slurm-client munge > "$1/apt.log" 2>&1
dd if=/dev/urandom of=m/etc/munge/munge.key bs=1 count=1024 2> /dev/null
chroot m chown munge: /etc/munge/munge.key
chmod 400 m/etc/munge/munge.key
umount -l m/proc m/dev m
rm -rf u/var/cache/apt u/proc u/dev
tar -C u -cf "$1/base.tar" .
