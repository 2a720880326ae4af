#!/usr/bin/env bash
# MPI programs that ask for turns themselves; and what becomes of jobs when there is no coordinator, and of turns when there is no job.
# limit: 120
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/system/mpi.bash
. "$(dirname "$0")/mpi.bash"

build_programs mpich openmpi
coordinate --set lease=1s
export IOGATE_PLACES=$SIDE=side
with_run=("${RUN[@]}")
RUN=("${ASK[@]}")

# --- A turn for all ranks, by the library's functions and by those of the paper.
jobs=0
for mpi in mpich openmpi; do
    start "a-$mpi" $mpi 2 asked,named "$SIDE/a-$mpi" 1 2
    start "b-$mpi" $mpi 2 asked,named "$SIDE/b-$mpi" 1 2
    finish "a-$mpi"
    finish "b-$mpi"
    jobs=$((jobs + 2))
    apart $jobs
done
[ "$(granted)" -eq 16 ] || fail "$(granted) turns, expected one for each checkpoint"
coordinator_says -e 'all(.finished[]; .place == "side" and .ending == "released")' >/dev/null || fail "not all as expected"

# --- Rank 0 is killed in its turn: the next job has it when the lease is over.
start killed mpich 2 held "$SIDE/killed"
is_held() { coordinator_says -e '.holders | length == 1' >/dev/null; }
eventually 20 is_held || fail "there is no turn: $(cat "$SIDE/killed.out")"
start next mpich 2 asked "$SIDE/next"
finish next
coordinator_says -e '.finished[0].ending == "released" and .finished[1].ending == "lost"' >/dev/null ||
    fail "expected that the killed job's turn is lost: $(coordinator_says -c '.finished[:2]')"
wait "${JOBS[killed]}" && fail "the killed job ended well"

# --- No coordinator: the job goes on, and says so. If it must not, it fails.
kill -TERM "$COORDINATOR"
wait "$COORDINATOR" || fail "the coordinator ended with status $?"
RUN=("${with_run[@]}")
export IOGATE_PATIENCE=200ms IOGATE_FILES='*.ckpt'
for mpi in mpich openmpi; do
    start alone $mpi 2 collective,asked "$SIDE/alone"
    finish alone
    grep -q 'going on without' "$SIDE/alone.out" || fail "the job does not say that there is no coordinator"
    IOGATE_STRICT=1 start strict $mpi 2 collective "$SIDE/strict"
    status=0
    wait "${JOBS[strict]}" || status=$?
    cat "$SIDE/strict.out"
    [ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "expected an error for want of a coordinator, got status $status"
    grep -q 'no turn' "$SIDE/strict.out" || fail "the job does not say why it failed"
done
