#!/usr/bin/env bash
# The coordinator's disk is full: jobs go on without turns, strict ones fail, and with room there are turns again.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" -eq 0 ] || skip "a small file system takes root to mount"
mount -t tmpfs -o size=64k none "$SRC"

export IOGATE_COORD=unix:$WORK/socket
unset IOGATE_POLICY IOGATE_JOB IOGATE_STRICT SLURM_JOB_ID
"$IOGATE" coord serve --listen "$IOGATE_COORD" --state "$SRC/state" >"$SIDE/said" 2>"$WORK/coord.log" &
COORD_PID=$!
eventually 10 grep -qx ready "$SIDE/said" || fail "the coordinator does not start"

"$IOGATE" turn --strict scratch -- true || fail "there is no turn although there is room"
head -c 1M /dev/zero >"$SRC/ballast" 2>/dev/null || true
# What is left of the last page of the journal is used up, too.
full() { ! "$IOGATE" turn --strict scratch -- true 2>/dev/null; }
eventually 20 full || fail "the disk is not full"

"$IOGATE" turn scratch -- touch "$SIDE/written" 2>"$SIDE/error" || fail "status $? without --strict: $(cat "$SIDE/error")"
[ -e "$SIDE/written" ] || fail "the command was not run"
grep -q "No space left on device.*going on without" "$SIDE/error" || fail "it says: $(cat "$SIDE/error")"
[ "$(wc -l <"$SIDE/error")" -eq 1 ] || fail "it says more than one line: $(cat "$SIDE/error")"
refused 1 "no space left on device" "$IOGATE" turn --strict scratch -- true

python=$(dirname "$0")/../../python
if [ -e "$python/iogate/_turn.abi3.so" ]; then
    PYTHONPATH=$python python3 -c '
import iogate
with iogate.turn("scratch") as turn:
    assert turn.token == 0 and turn.is_valid
' || fail "a Python program does not go on"
fi

rm "$SRC/ballast"
works() { "$IOGATE" turn --strict scratch -- true 2>/dev/null; }
eventually 20 works || fail "there is room, and there are no turns"
kill -TERM "$COORD_PID"
wait "$COORD_PID" || fail "SIGTERM: the coordinator ended with status $?"
