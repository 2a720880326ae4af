#!/usr/bin/env bash
# What cannot be done is refused with a clear message and an exit status, and nothing stays mounted.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

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
