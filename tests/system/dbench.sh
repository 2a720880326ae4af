#!/usr/bin/env bash
# dbench's file server load: creates, writes, renames, deletes, locks, flushes.
# limit: 60
# variants: fifo aioli/page
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

mount_gate
dbench -D "$MNT" --timelimit=10 4 >"$SIDE/dbench.out" 2>&1 || {
    tail -n 20 "$SIDE/dbench.out"
    fail "dbench failed"
}
grep '^Throughput' "$SIDE/dbench.out" || fail "dbench reported no throughput"
! grep -Ei 'failed|error|unexpected' "$SIDE/dbench.out" || fail "dbench met an error"
unmount_gate
