#!/usr/bin/env bash
# A mount that has nothing to do uses no CPU.
# limit: 40
# variants: fifo aioli twins fifo/direct/device
# alone: it measures what a mount does not use
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

# The ticks (10 ms) of CPU time that a process has used.
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"; }

mount_gate
head -c 4000000 /dev/urandom >"$MNT/file"
cmp "$MNT/file" "$SRC/file"
sleep 1
before=$(ticks "$GATE_PID")
sleep 5
after=$(ticks "$GATE_PID")
echo "$((after - before)) ticks in 5 s"
[ $((after - before)) -le 1 ] || fail_by_time "the idle mount used $((after - before)) ticks of CPU in 5 s"
unmount_gate
