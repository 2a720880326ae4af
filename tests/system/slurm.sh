#!/usr/bin/env bash
# Jobs of Slurm take turns when the site says no more than where the coordinator is: batch jobs with an MPI program, and an array. The
# coordinator knows them by their numbers. A Slurm of one node, with its own daemons, ports and key.
# limit: 120
# variants: fifo
# alone: its daemons give up on a busy machine
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/system/mpi.bash
. "$(dirname "$0")/mpi.bash"
# shellcheck source=tests/system/slurm.bash
. "$(dirname "$0")/slurm.bash"

begin_slurm

# --- What the site does: a coordinator, whose place is in everybody's environment, and the program.
build_programs mpich
coordinate
PATH=$(dirname "$IOGATE"):$PATH
export PATH

# submit NAME OPTION... -- ARGUMENT...: prints the job's number.
submit() {
    local name=$1 options=()
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    sbatch --parsable --output="$SIDE/$name-%a.out" "${options[@]}" "$ROOT/examples/slurm-checkpoint.sbatch" "${@:2}"
}

first=$(submit first -- "$SIDE/checkpoint.mpich" nested "$SIDE/first" 4 2 100)
second=$(submit second -- "$SIDE/checkpoint.mpich" nested "$SIDE/second" 4 2 100)
# shellcheck disable=SC2016 # for the tasks' shells
array=$(submit array --array=1-3 --ntasks=1 -- sh -c 'exec "$0" collective "$1-$SLURM_ARRAY_TASK_ID" 2' \
    "$SIDE/checkpoint.mpich" "$SIDE/array")
eventually 40 no_jobs || fail "the jobs do not end: $(squeue)"
tail -n +1 "$SIDE"/{first,second,array}-*.out
[ "$(cat "$SIDE"/{first,second,array}-*.out | grep -c 'verified')" -eq 5 ] || fail "not all jobs have written what they should"

# --- One after the other, each by its name: the tasks of an array have numbers of their own, the last of them the array's.
apart 5
jobs=$(coordinator_says -r '[.finished[].label] | unique | .[]')
for job in "$first" "$second" $((array + 1)) $((array + 2)) "$array"; do
    grep -qx "job $job\.0 (simulation)" <<<"$jobs" || fail "job $job is not there by its name: $jobs"
done
