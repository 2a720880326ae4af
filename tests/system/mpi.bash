# shellcheck shell=bash
# What the tests of MPI jobs share: their programs, a coordinator, jobs, and what the coordinator has seen of them. Sourced after lib.sh.

needs jq mpicc.mpich mpirun.mpich mpicc.openmpi mpirun.openmpi
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
LIBRARIES=$ROOT/target/mpi
COORD=unix:$SIDE/coord
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
declare -A JOBS=()
# What starts a job's program: with all that `iogate run` does, or for programs that ask for turns themselves, only with the library at hand.
RUN=("$IOGATE" run)
# shellcheck disable=SC2034 # for the tests
ASK=(env "LD_LIBRARY_PATH=$(dirname "$IOGATE")")

# build_programs MPI...: the library of iogate for each MPI, and $SIDE/checkpoint.MPI, which is linked with it.
build_programs() {
    local mpi
    "$ROOT/mpi/build" >/dev/null
    for mpi in "$@"; do
        "mpicc.$mpi" -O1 -Wall -Wextra -Werror -DWITH_TURNS -I"$ROOT/mpi" -I"$ROOT/crates/iogate-turn/include" -o "$SIDE/checkpoint.$mpi" \
            "$ROOT/tests/system/mpi-checkpoint.c" -L"$LIBRARIES" "-liogate_mpi-$mpi" "-Wl,-rpath,$LIBRARIES"
    done
}

# coordinate [OPTION...]: starts a coordinator that all jobs from now on know.
coordinate() {
    "$IOGATE" coord serve --listen "$COORD" --state "$SIDE/state" "$@" >"$WORK/coord.out" 2>"$WORK/coord.log" &
    COORDINATOR=$!
    eventually 10 test -S "$SIDE/coord" || fail "the coordinator does not listen: $(cat "$WORK/coord.log")"
    export IOGATE_COORD=$COORD
}

# start NAME MPI RANKS ARGUMENT...: a job of checkpoints, started by RUN, in the background.
start() {
    local name=$1 mpi=$2 ranks=$3
    shift 3
    local launch=("mpirun.$mpi")
    [ "$mpi" != openmpi ] || launch+=(--oversubscribe)
    mkdir -p "$SIDE/$name.tmp"
    OMPI_MCA_orte_tmpdir_base=$SIDE/$name.tmp timeout 50 "${launch[@]}" -n "$ranks" "${RUN[@]}" "$SIDE/checkpoint.$mpi" "$@" >"$SIDE/$name.out" 2>&1 &
    JOBS[$name]=$!
}

# finish NAME [STATUS]: waits for a job.
finish() {
    local status=0
    wait "${JOBS[$1]}" || status=$?
    cat "$SIDE/$1.out"
    [ "$status" -eq "${2:-0}" ] || fail "job $1 ended with status $status"
}

coordinator_says() { "$IOGATE" coord status --json | jq "$@"; }

# How many turns were granted so far.
granted() { coordinator_says .counters.granted; }

# apart PARTIES: so many parties have had turns that are over, and no two of them at a time. (Times are in whole milliseconds.)
apart() {
    coordinator_says -c '.finished[] | [.label, .place, .held_ms, .ago_ms, .ending]'
    coordinator_says -e --argjson parties "$1" '
        [.finished[] | {job: .label, from: (-.ago_ms - .held_ms), to: (-.ago_ms)}]
        | (map(.job) | unique | length == $parties)
            and all(.[] as $a | .[] | select(.job != $a.job) | .from + 3 >= $a.to or $a.from + 3 >= .to; .)' >/dev/null ||
        fail "expected the turns of $1 jobs, one after the other"
}

# Seconds that a job's checkpoints took.
seconds_of() { sed -n 's/.*: verified, \(.*\) s$/\1/p' "$SIDE/$1.out"; }
