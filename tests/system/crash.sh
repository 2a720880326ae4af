#!/usr/bin/env bash
# The mount's process is killed while programs write: what was acknowledged is in the source, and the dead mount can
# be unmounted and mounted again.
# limit: 60
# variants: fifo aioli twins aioli/page aioli/direct/device
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

record() { yes "writer $1, record $2" | head -c 20000 || true; }

# Writes records, each a file, and appends each to a log of its own; an acknowledged one is noted in SIDE.
writer() {
    local i
    for i in $(seq 100000); do
        record "$1" "$i" | dd of="$MNT/file-$1-$i" bs=20000 iflag=fullblock conv=fsync status=none || return 0
        echo "$i" >>"$SIDE/files-$1"
        echo "line $i" | dd of="$MNT/log-$1" oflag=append conv=notrunc,fsync status=none || return 0
        echo "line $i" >>"$SIDE/log-$1"
    done
}

mount_gate
for w in 1 2 3; do
    writer $w 2>/dev/null &
done
enough() { [ "$(cat "$SIDE"/files-* 2>/dev/null | wc -l)" -ge 150 ]; }
eventually 20 enough || fail "only $(cat "$SIDE"/files-* | wc -l) records were written in 20 s"
kill -KILL "$GATE_PID"
gate_ends 137
refused any 'not connected|no such device|connection abort' cat "$MNT/log-1"
wait # the writers end by themselves: their programs get errors

for w in 1 2 3; do
    while read -r i; do
        record $w "$i" | cmp - "$SRC/file-$w-$i" || fail "writer $w: the acknowledged record $i is not whole"
    done <"$SIDE/files-$w"
    # At most one more line than was acknowledged: the one that was underway.
    head -n "$(wc -l <"$SIDE/log-$w")" "$SRC/log-$w" | cmp - "$SIDE/log-$w" || fail "writer $w: the log lost a line"
done
echo "$(cat "$SIDE"/files-* | wc -l) acknowledged records are there"

"$IOGATE" umount "$MNT" || fail "the dead mount cannot be unmounted"
eventually 5 is_unmounted || fail "the dead mount is still there"
mount_gate
cmp "$MNT/log-1" "$SRC/log-1"
echo again >"$MNT/again"
unmount_gate
