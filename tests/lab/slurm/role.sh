#!/bin/bash
# role.sh I NODES SCRIPT: n0 is the controller and runs SCRIPT; the others run slurmd until /mnt/kill-n<I> appears.
i=$1 count=$2 script=$3
seq 0 "$count" | while read -r j; do echo "10.77.0.$((j + 1)) n$j"; done >> /etc/hosts
mkdir -p /etc/slurm /run/munge /run/slurm /var/spool/slurmd /var/spool/slurmctld /var/log/slurm /opt/lab /etc/lab
touch /opt/lab/nvidia{0..1}
cp "/mnt/gpus/n$i.txt" /etc/lab/gpus.txt 2> /dev/null
chown munge: /run/munge /var/log/munge /var/lib/munge
cat > /etc/slurm/slurm.conf << CONF
ClusterName=lab
SlurmctldHost=n0
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldLogFile=/var/log/slurm/ctld.log
SlurmdLogFile=/var/log/slurm/d.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=n[1-$count] CPUs=2 RealMemory=1000 Gres=gpu:2 State=UNKNOWN
PartitionName=gpu Nodes=n[1-$count] Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES:4
CONF
cat /mnt/slurm.conf >> /etc/slurm/slurm.conf
echo "NodeName=n[1-$count] Name=gpu File=/opt/lab/nvidia[0-1]" > /etc/slurm/gres.conf
start() { su -s /bin/sh munge -c /usr/sbin/munged; sleep 0.3; }
start
if [ "$i" = 0 ]; then
    slurmctld -D > /var/log/slurm/out 2>&1 &
    for _ in $(seq 120); do sleep 0.5; [ "$(sinfo -h -N -t idle -o %N 2> /dev/null | wc -l)" = "$count" ] && break; done
    bash "$script"
    exit
fi
while true; do
    slurmd -D > /var/log/slurm/d.out 2>&1 &
    while [ ! -e "/mnt/kill-n$i" ]; do sleep 0.2; done
    kill -9 -1
    rm -f /run/munge/*
    while [ -e "/mnt/kill-n$i" ]; do sleep 0.2; done
    start
done
