#!/usr/bin/env bash
# Two MPI jobs that write checkpoints to one disk at the same time: with `iogate run` they take turns, each its own, none while the other has one.
# The disk is a modelled one behind a mount, as this machine's own does not show what moving a head costs: what turns gain is said, not
# judged, as it is a matter of the machine.
# limit: 120
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/system/mpi.bash
. "$(dirname "$0")/mpi.bash"

build_programs mpich
coordinate
mount_gate --depth 1 --store modelled --device pastel
export IOGATE_FILES='*.ckpt'

# both: runs the two jobs, and sets MEAN to the mean of their I/O times and ALL to the time until both were done, in ms.
both() {
    local job began
    began=$(date +%s%3N)
    for job in a b; do
        start $job mpich 2 independent "$MNT/$job" 16 2 200 "$SRC/$job"
    done
    finish a
    finish b
    ALL=$(($(date +%s%3N) - began))
    MEAN=$(awk -v a="$(seconds_of a)" -v b="$(seconds_of b)" 'BEGIN { printf "%d", (a + b) * 500 }')
    rm "$MNT"/*.ckpt
}

IOGATE_POLICY=none both
without=$MEAN without_all=$ALL
both
echo "mean I/O time: $without ms without turns, $MEAN ms with; until both are done: $without_all ms and $ALL ms"
apart 2
"$IOGATE" status "$MNT" | grep '^device'
unmount_gate
