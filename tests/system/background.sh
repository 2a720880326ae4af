#!/usr/bin/env bash
# Without -f the command returns when the mount is ready, and the mount's process ends with the mount. What is mounted where is said at a
# terminal, and nothing elsewhere.
# limit: 30
# variants: aioli
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

[ -c /dev/fuse ] || skip "there is no /dev/fuse"
echo "$MNT" >"$SIDE/argument" # in a file, so that grep does not find itself
servers() { grep -lzxF -f "$SIDE/argument" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3; }
no_server() { [ -z "$(servers)" ]; }

"$IOGATE" mount "$SRC" "$MNT" --scheduler "$SCHEDULER" >"$SIDE/said" 2>&1 || fail "the mount failed: $(cat "$SIDE/said")"
[ ! -s "$SIDE/said" ] || fail "a script's output has what is for people: $(cat "$SIDE/said")"
is_mounted || fail "the command returned before the mount was ready"
[ "$(servers | wc -l)" -eq 1 ] || fail "expected one process that serves the mount, found: $(servers)"
echo kept >"$MNT/file"
[ "$(cat "$SRC/file")" = kept ] || fail "the source lacks what was written"
"$IOGATE" status "$MNT" || fail "status failed"
"$IOGATE" umount "$MNT" || fail "umount failed"
is_unmounted || fail "still mounted after umount"
eventually 5 no_server || fail "the mount's process is still there: $(servers)"

needs python3
# at_terminal COMMAND...: with a terminal as its input and output.
at_terminal() { python3 -c 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' "$@"; }
for scheduler in "$SCHEDULER" auto; do
    expected="scheduler $SCHEDULER"
    [ "$scheduler" != auto ] || expected='scheduler [a-z-]+ \(auto\)'
    at_terminal "$IOGATE" mount "$SRC" "$MNT" --scheduler "$scheduler" </dev/null >"$SIDE/said" || fail "the mount failed: $(cat "$SIDE/said")"
    said=$(tr -d '\r' <"$SIDE/said")
    before="$SRC is mounted at $MNT, "
    after=": see \`iogate status $MNT\`, end it by \`iogate umount $MNT\`"
    chosen=${said#"$before"}
    chosen=${chosen%"$after"}
    [[ "$said" = "$before$chosen$after" && "$chosen" =~ ^$expected$ ]] ||
        fail "of the mount it says: $said"
    "$IOGATE" umount "$MNT" || fail "umount failed"
    eventually 5 no_server || fail "the mount's process is still there: $(servers)"
done
