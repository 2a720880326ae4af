#!/usr/bin/env bash
# A mount that has nothing to do uses no CPU and wakes up for nothing.
# limit: 40
# variants: fifo aioli twins fifo/direct/device
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

# What a process has used so far: the ticks (10 ms) of CPU time, and how often one of its threads was switched to.
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"; }
switches() { cat "/proc/$1/task/"*/status | awk '/ctxt_switches/ { all += $2 } END { print all }'; }

# What is still to be done from before may be late on a busy machine, so any two seconds may show it.
is_idle() {
    local ticks_before switches_before used woke
    ticks_before=$(ticks "$GATE_PID")
    switches_before=$(switches "$GATE_PID")
    sleep 2
    used=$(($(ticks "$GATE_PID") - ticks_before))
    woke=$(($(switches "$GATE_PID") - switches_before))
    echo "$used ticks and $woke switches in 2 s"
    [ "$used" -le 1 ] && [ "$woke" -le 2 ]
}

mount_gate
head -c 4000000 /dev/urandom >"$MNT/file"
cmp "$MNT/file" "$SRC/file"
is_idle || is_idle || is_idle || is_idle || is_idle || fail "the idle mount goes on using CPU"
unmount_gate
