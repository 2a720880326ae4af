#!/usr/bin/env bash
# Programs say how much they move in a burst: a mount, a server behind a mount, and a server of programs with the preload library know by
# that when they end, and their status says who says so. What is no size is warned of once, and nothing fails.
# limit: 120
# variants: auto
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs jq
library=${IOGATE%/*}/libiogate_preload.so
[ -f "$library" ] || fail "there is no $library: cargo build --workspace --lib --bins --examples"
server=
end() {
    local status=$?
    is_unmounted || umount --lazy "$MNT" || true
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
    clean_up "$status"
}
trap end EXIT

# writes APP BURST FILE: an application that says so much and writes in the background, until it is stopped.
writers=()
writes() {
    IOGATE_APP=$1 IOGATE_BURST=$2 dd if=/dev/zero of="$3" bs=64k count=2000000 conv=notrunc status=none &
    writers+=($!)
}
stop_writers() {
    kill "${writers[@]}" 2>/dev/null || true
    wait "${writers[@]}" 2>/dev/null || true
    writers=()
}
# expects PLACE FILTER APP BYTES: of the gate at PLACE, which FILTER finds in its status, by what the application has said.
expects() {
    "$IOGATE" status "$1" --json |
        jq -e --argjson app "$3" --argjson bytes "$4" \
            "$2.choice.expected[]? | select(.app == \$app and .bytes == \$bytes and .from == \"said\" and .left < .bytes)" >/dev/null
}
GIB=$((1 << 30))

echo "== a mount"
mount_gate --store modelled --device hdd --depth 1
writes 11 64GiB "$MNT/one"
writes 12 80GiB "$MNT/two"
eventually 30 expects "$MNT" "" 11 $((64 * GIB)) || fail "the first one's end is not expected: $("$IOGATE" status "$MNT" --json | jq .choice)"
eventually 30 expects "$MNT" "" 12 $((80 * GIB)) || fail "the second one's end is not expected: $("$IOGATE" status "$MNT" --json | jq .choice)"
"$IOGATE" status "$MNT" >"$SIDE/table" || fail "status failed"
grep -qE '^11 .* 64 GiB .*what it says' "$SIDE/table" || fail "the table does not say who says so: $(cat "$SIDE/table")"
# Another process of the first one says more.
writes 11 96GiB "$MNT/three"
eventually 30 expects "$MNT" "" 11 $((96 * GIB)) || fail "not the most counts"
stop_writers

# What is no size: said once, and nothing fails.
for file in four five; do
    IOGATE_APP=13 IOGATE_BURST='ten potatoes' dd if=/dev/zero of="$MNT/$file" bs=64k count=4 status=none || fail "a value that is no size costs a write"
done
[ "$(grep -c 'IOGATE_BURST: expected a number of bytes such as 10GiB, found "ten potatoes"' "$WORK/mount.log")" -eq 1 ] ||
    fail "what is no size is not warned of once: $(cat "$WORK/mount.log")"
"$IOGATE" status "$MNT" --json | jq -e '[.choice.expected[]? | select(.app == 13)] == []' >/dev/null || fail "what is no size counts"

# By `iogate run`, where the program has no other name than its session: one of its own, as this one's may have none here.
setsid "$IOGATE" run --policy none --burst 7GiB -- dd if=/dev/zero of="$MNT/six" bs=64k count=2000000 conv=notrunc status=none &
writers+=($!)
said_by_run() {
    "$IOGATE" status "$MNT" --json | jq -e --argjson bytes $((7 * GIB)) '.choice.expected[]? | select(.bytes == $bytes and .from == "said")' >/dev/null
}
eventually 30 said_by_run || fail "what iogate run says is not known"
stop_writers
refused 2 'potatoes.*expected a number of bytes' "$IOGATE" run --policy none --burst potatoes -- true
unmount_gate

echo "== a server, and a mount of it"
serve_source
"$IOGATE" mount --remote "unix:$WORK/socket" --scheduler fifo "$MNT" || fail "not mounted"
writes 21 32GiB "$MNT/one"
writes 22 48GiB "$MNT/two"
eventually 30 expects "unix:$WORK/socket" ".exports[0].gate" 21 $((32 * GIB)) || fail "the server does not know what is said at a mount"
eventually 30 expects "unix:$WORK/socket" ".exports[0].gate" 22 $((48 * GIB)) || fail "the server does not know what is said at a mount"
stop_writers
"$IOGATE" umount "$MNT" || fail "it cannot be unmounted"

echo "== a server, and the preload library"
export IOGATE_FORWARDERS=unix:$WORK/socket IOGATE_PREFIX=/iogate-of-tests
IOGATE_APP=31 IOGATE_BURST=16GiB LD_PRELOAD=$library dd if=/dev/zero of=/iogate-of-tests/three bs=64k count=2000000 conv=notrunc status=none &
writers+=($!)
eventually 30 expects "unix:$WORK/socket" ".exports[0].gate" 31 $((16 * GIB)) || fail "the server does not know what is said in a program"
stop_writers
IOGATE_APP=32 IOGATE_BURST=potatoes LD_PRELOAD=$library dd if=/dev/zero of=/iogate-of-tests/four bs=64k count=4 status=none 2>"$SIDE/warned" ||
    fail "a value that is no size costs a write"
[ "$(grep -c 'found "potatoes"' "$SIDE/warned")" -eq 1 ] || fail "what is no size is not warned of once: $(cat "$SIDE/warned")"
unset IOGATE_FORWARDERS IOGATE_PREFIX
kill -TERM "$server"
eventually 10 is_gone "$server" || fail "the server goes on"
server=
