#!/usr/bin/env bash
# SIGTERM and SIGINT unmount: the process ends with status 0, and all that was written is in the source. A program
# that has a file open then keeps it, and the process ends when it is closed.
# limit: 40
# variants: fifo aioli aioli/page fifo/direct/device
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

for signal in TERM INT; do
    mount_gate
    head -c 3000000 /dev/urandom >"$SIDE/data"
    cp "$SIDE/data" "$MNT/data-$signal"
    kill -"$signal" "$GATE_PID"
    eventually 5 is_unmounted || fail "still mounted after SIG$signal"
    gate_ends
    cmp "$SIDE/data" "$SRC/data-$signal" || fail "the source lacks what was written before SIG$signal"
    [ -z "$(ls -A "$MNT")" ] || fail "the mount point is not empty"
done

mount_gate
exec 5>"$MNT/open"
echo before >&5
refused any 'in use' "$IOGATE" umount "$MNT"
kill -TERM "$GATE_PID"
eventually 5 is_unmounted || fail "still mounted after SIGTERM with a file open"
echo after >&5 || fail "the open file refuses writes"
exec 5>&-
gate_ends
[ "$(cat "$SRC/open")" = $'before\nafter' ] || fail "the open file has lost something: $(cat "$SRC/open")"
