#!/usr/bin/env bash
# dbench's file server load: creates, writes, renames, deletes, locks, flushes.
# limit: 60
# variants: fifo aioli/page
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs dbench
mount_gate
dbench -D "$MNT" --timelimit=4 4 >"$SIDE/dbench.out" 2>&1 || {
    tail -n 20 "$SIDE/dbench.out"
    fail "dbench failed"
}
grep '^Throughput' "$SIDE/dbench.out" || fail "dbench reported no throughput"
# Where it cannot use a semaphore of System V, dbench says so, starts its clients by other means and goes on.
! grep -v 'barrier semaphore' "$SIDE/dbench.out" | grep -Ei 'failed|error|unexpected' || fail "dbench met an error"
unmount_gate
