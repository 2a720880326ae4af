#!/usr/bin/env bash
# MPI jobs take turns with what they write by MPI-IO, whatever calls they do it by, and what they write is as it should be.
# limit: 120
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/system/mpi.bash
. "$(dirname "$0")/mpi.bash"

build_programs mpich openmpi
coordinate
export IOGATE_FILES='*.ckpt'

# --- Two jobs at a time.
jobs=0
for mpi in mpich openmpi; do
    start "a-$mpi" $mpi 2 collective,nested,ordered,begin-end,nonblocking,independent,lonely,kept,two,split "$SIDE/a-$mpi"
    start "b-$mpi" $mpi 2 collective,nested,ordered,begin-end,nonblocking,independent,lonely,kept,two,split "$SIDE/b-$mpi"
    finish "a-$mpi"
    finish "b-$mpi"
    jobs=$((jobs + 2))
    apart $jobs
done

# --- How many turns a job of two checkpoints takes, with four collective writes each.
# turns_of EXPECTED MODE KIND [COMPUTE_MS]
turns_of() {
    local before
    before=$(granted)
    IOGATE_MPI_TURN=$2 start modes mpich 2 "$3" "$SIDE/modes" 1 2 "${4:-0}"
    finish modes
    [ $(($(granted) - before)) -eq "$1" ] || fail "with $2, $3 takes $(($(granted) - before)) turns, expected $1"
}
turns_of 2 burst collective
turns_of 8 collective collective
turns_of 2 file independent
turns_of 1 file kept
# A file that stays open holds nothing while its program computes.
IOGATE_IDLE=200ms turns_of 2 burst lasting 600
coordinator_says -e '.finished[0].held_ms < 600' >/dev/null || fail "a turn lasts while nothing is written"

# Nor does one whose split write could not begin, and so has no end.
for mpi in mpich openmpi; do
    for mode in burst collective; do
        before=$(granted)
        IOGATE_MPI_TURN=$mode IOGATE_IDLE=200ms start failed $mpi 2 failed "$SIDE/failed" 1 2 1500
        finish failed
        expected=2
        [ $mode = burst ] || expected=10
        [ $(($(granted) - before)) -eq $expected ] ||
            fail "with $mode of $mpi, $(($(granted) - before)) turns, expected $expected: one lasts after a write that did not begin"
    done
done

# --- The same in Fortran, which has names of its own for everything.
for mpi in mpich openmpi; do
    for binding in mpi "mpi_f08 -DF08"; do
        # shellcheck disable=SC2086 # flags are words
        "mpifort.$mpi" -cpp -DBINDING=$binding -o "$SIDE/checkpoint.$mpi" "$ROOT/tests/system/mpi-fortran.f90"
        before=$(granted)
        start fortran $mpi 2 "$SIDE/fortran"
        finish fortran
        [ $(($(granted) - before)) -eq 1 ] || fail "$binding of $mpi: $(($(granted) - before)) turns, expected 1"
    done
done
