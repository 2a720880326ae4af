#!/usr/bin/env bash
# What cannot be done is refused with a clear message and an exit status, and nothing stays mounted.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs python3

mount_refused() {
    local pattern=$1
    shift
    refused any "$pattern" "$IOGATE" mount "$@" -f
    is_unmounted || fail "something is mounted"
}

echo file >"$SIDE/file"
mkdir "$SIDE/not-empty" && touch "$SIDE/not-empty/x"
mount_refused 'not a (directory|folder)' "$SIDE/file" "$MNT"
mount_refused 'no such file|does not exist' "$SIDE/nowhere" "$MNT"
mount_refused 'must be a directory' "$SRC" "$SIDE/file"
mount_refused 'no such file|does not exist' "$SRC" "$SIDE/nowhere"
mount_refused 'must be empty|not empty' "$SRC" "$SIDE/not-empty"
mount_refused 'aioli' "$SRC" "$MNT" --scheduler ailoi
mount_refused 'twins' "$SRC" "$MNT" --scheduler twin
mount_refused 'quantum_base' "$SRC" "$MNT" --scheduler aioli --param quantum_bsae=32KiB
mount_refused 'quantum_base' "$SRC" "$MNT" --scheduler aioli --param quantum_base=1
mount_refused 'window' "$SRC" "$MNT" --scheduler twins --param window=banana
mount_refused 'unexpected argument|unknown option' "$SRC" "$MNT" --no-such-option
refused 2 'usage' "$IOGATE" mount
refused any 'mount' "$IOGATE" umount "$SIDE/not-empty"
refused any 'mount' "$IOGATE" status "$SIDE/not-empty"
refused any 'mount' "$IOGATE" set "$SIDE/not-empty" scheduler=sjf
refused any 'no such file|does not exist' "$IOGATE" status "$SIDE/nowhere"

# The same without -f: the process that was asked says why.
refused any 'not a (directory|folder)' "$IOGATE" mount "$SIDE/file" "$MNT"
refused any 'not empty|must be empty' "$IOGATE" mount "$SRC" "$SIDE/not-empty"
is_unmounted || fail "something is mounted"
mkdir "$SRC/below"
mount_refused 'outside' "$SRC" "$SRC/below"

mount_gate
echo one >"$MNT/one"
refused any 'in use|already|mounted' "$IOGATE" mount "$SRC" "$MNT" -f
[ "$(cat "$MNT/one")" = one ] || fail "the first mount suffered"
unmount_gate
refused any 'mount' "$IOGATE" umount "$MNT"

# The journal of another release is left to that release, as it is.
STATE=$SIDE/state
"$IOGATE" coord serve --listen "unix:$WORK/coord" --state "$STATE" >"$SIDE/coord.out" 2>"$WORK/coord.log" &
COORD_PID=$!
eventually 10 grep -qx ready "$SIDE/coord.out" || fail "the coordinator does not start"
IOGATE_COORD=unix:$WORK/coord "$IOGATE" turn --strict scratch -- true || fail "there is no turn"
kill -TERM "$COORD_PID"
wait "$COORD_PID" || fail "SIGTERM: the coordinator ended with status $?"
python3 - "$STATE/journal" <<'PY'
import sys, zlib

first, rest = open(sys.argv[1], "rb").read().split(b"\n", 1)
older = first[9:].replace(b'"version":1', b'"version":0')
assert older != first[9:], first
open(sys.argv[1], "wb").write(b"%08x %s\n%s" % (zlib.crc32(older), older, rest))
PY
cp "$STATE/journal" "$SIDE/before"
refused any 'journal has version 0, expected 1: use the release that wrote it' \
    "$IOGATE" coord serve --listen "unix:$WORK/coord" --state "$STATE"
[ "$(wc -l <"$SIDE/refused")" -eq 1 ] || fail "it says more than one line"
cmp "$SIDE/before" "$STATE/journal" || fail "the journal is not what it was"
