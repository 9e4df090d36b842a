#!/bin/bash
# role.sh I NODES SCRIPT: n0 is the controller and runs SCRIPT, with output in /mnt/out. A node without GPUs is down.
i=$1 count=$2 script=$3
seq 0 "$count" | while read -r j; do echo "10.77.0.$((j + 1)) n$j"; done >> /etc/hosts
mkdir -p /etc/slurm /etc/lab /run/munge /run/slurm /var/spool/slurmd /var/spool/slurmctld /var/log/slurm
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
KillOnBadExit=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
NodeName=n[1-$count] CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=gpu Nodes=n[1-$count] Default=YES MaxTime=INFINITE State=UP
CONF
su -s /bin/sh munge -c /usr/sbin/munged
sleep 0.3
if [ "$i" = 0 ]; then
    slurmctld -D > /var/log/slurm/out 2>&1 &
    for _ in $(seq 120); do sleep 0.5; [ "$(sinfo -h -N -t idle -o %N 2> /dev/null | wc -l)" = "$(ls /mnt/gpus | wc -l)" ] && break; done
    bash "$script" > /mnt/out 2> /mnt/err < /dev/null
    echo $? > /mnt/status
    exit
fi
cp "/mnt/gpus/n$i.txt" /etc/lab/gpus.txt && exec slurmd -D
