#!/bin/bash
# agent.sh: run on n0 every script that appears in /mnt/do, each beside the others, until /mnt/stop appears.
mkdir -p /mnt/do
touch /mnt/ready
while [ ! -e /mnt/stop ]; do
    for script in /mnt/do/*.sh; do
        [ -e "$script" ] && [ ! -e "$script.begun" ] || continue
        touch "$script.begun"
        (bash "$script" > "$script.out" 2> "$script.err" < /dev/null; echo $? > "$script.part"; mv "$script.part" "$script.status") &
    done
    sleep 0.1
done
