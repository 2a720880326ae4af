#!/usr/bin/env bash
# The source folder disappears under the mount: programs get errors, nothing hangs, and it unmounts.
# limit: 30
# variants: fifo aioli
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

mount_gate
echo kept >"$MNT/kept"
exec 5>>"$MNT/open"
echo before >&5
rm -rf "$SRC"
sleep 1.5 # the kernel may trust a name for a second
refused any 'no such file|stale|input/output' cat "$MNT/kept"
refused any 'no such file|stale|input/output' touch "$MNT/new"
echo after >&5 || echo "a file that was open refuses writes now"
exec 5>&-
! is_gone "$GATE_PID" || fail "the mount's process is gone"
timeout 5 "$IOGATE" status "$MNT" --json >/dev/null || fail "status fails"
unmount_gate
