#!/usr/bin/env bash
# A mount and its source are one place: who takes a turn by the one waits for who has it by the other.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs jq
mount_gate
mkdir "$MNT/sub"
export IOGATE_COORD=unix:$SIDE/socket
"$IOGATE" coord serve --listen "$IOGATE_COORD" --state "$SIDE/state" >"$WORK/coordinator.log" 2>&1 &
eventually 10 test -S "$SIDE/socket" || fail "the coordinator does not listen"

# turns NUMBER WHAT: as many hold, or wait.
turns() { "$IOGATE" coord status --json | jq -e "$2 == $1" >/dev/null; }
IOGATE_APP=holder "$IOGATE" turn "$MNT/sub" -- sh -c "until [ -e '$SIDE/go' ]; do sleep 0.05; done; echo holder >>'$SIDE/order'" &
holder=$!
eventually 10 turns 1 '.holders | length' || fail "nobody holds a turn"
IOGATE_APP=other "$IOGATE" turn "$SRC" -- sh -c "echo other >>'$SIDE/order'" &
other=$!
eventually 10 turns 1 .waiting || fail "by the source it is another place than by the mount: $("$IOGATE" coord status)"
touch "$SIDE/go"
wait "$holder" "$other" || fail "a turn failed"
[ "$(tr '\n' ' ' <"$SIDE/order")" = "holder other " ] || fail "they did not take turns: $(cat "$SIDE/order")"
"$IOGATE" coord status --json | jq -e '[.finished[].place] | unique | length == 1' >/dev/null || fail "there are two places"

echo "== a name for the source is the mount's, too, unless the mount has one"
place() { "$IOGATE" coord status --json | jq -r '.finished[0].place'; }
IOGATE_PLACES="$SRC=disk" "$IOGATE" turn "$MNT/sub" -- true
[ "$(place)" = disk ] || fail "the mount is called $(place), not as its source"
IOGATE_PLACES="$SRC=disk:$MNT=gate" "$IOGATE" turn "$MNT/sub" -- true
[ "$(place)" = gate ] || fail "the mount is called $(place), not as it was to be"
unmount_gate
