#!/usr/bin/env bash
# `iogate status` counts what programs did, by application, and the mount can be found by its process.
# limit: 30
# variants: fifo aioli
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs jq
mount_gate
IOGATE_APP=4711 dd if=/dev/zero of="$MNT/a" bs=64k count=32 status=none
IOGATE_APP=4712 dd if=/dev/zero of="$MNT/b" bs=64k count=16 status=none
IOGATE_APP=4711 dd if="$MNT/a" of=/dev/null bs=64k status=none
"$IOGATE" status "$MNT" >"$SIDE/table" && cat "$SIDE/table"
grep -q "$SCHEDULER" "$SIDE/table" || fail "the table does not name the scheduler"
"$IOGATE" status "$MNT" --json >"$SIDE/status.json"
jq . "$SIDE/status.json" >/dev/null || fail "status --json is not JSON"
for app in 4711 4712; do
    jq -e --argjson app $app '[.. | numbers, strings | tostring] | index($app | tostring) != null' \
        "$SIDE/status.json" >/dev/null || fail "status does not know the application $app"
done
written=$((48 * 65536))
jq -e --argjson bytes $written '[.. | numbers] | index($bytes) != null' "$SIDE/status.json" >/dev/null ||
    fail "status has no count of the $written bytes written: $(jq -c . "$SIDE/status.json")"
pattern=$(jq -r '.patterns[] | select(.app == 4711) | .words' "$SIDE/status.json")
[[ "$pattern" =~ ^[0-9]+\ client.*contiguously ]] ||
    fail "status says of what 4711 does: '$pattern'; expected that it goes through files contiguously"
grep -qF "$pattern" "$SIDE/table" || fail "the table does not say what 4711 does"
unmount_gate
