#!/usr/bin/env bash
# Without -f the command returns when the mount is ready, and the mount's process ends with the mount.
# limit: 30
# variants: aioli
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

[ -c /dev/fuse ] || skip "there is no /dev/fuse"
echo "$MNT" >"$SIDE/argument" # in a file, so that grep does not find itself
servers() { grep -lzxF -f "$SIDE/argument" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3; }
no_server() { [ -z "$(servers)" ]; }

"$IOGATE" mount "$SRC" "$MNT" --scheduler "$SCHEDULER" || fail "the mount failed"
is_mounted || fail "the command returned before the mount was ready"
[ "$(servers | wc -l)" -eq 1 ] || fail "expected one process that serves the mount, found: $(servers)"
echo kept >"$MNT/file"
[ "$(cat "$SRC/file")" = kept ] || fail "the source lacks what was written"
"$IOGATE" status "$MNT" || fail "status failed"
"$IOGATE" umount "$MNT" || fail "umount failed"
is_unmounted || fail "still mounted after umount"
eventually 5 no_server || fail "the mount's process is still there: $(servers)"
