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

PATH=$PATH:/usr/sbin:/sbin
for program in munged slurmctld slurmd srun sbatch; do
    command -v $program >/dev/null || skip "there is no $program (scripts/setup installs it)"
done
[ "$(id -u)" -eq 0 ] || skip "Slurm's daemons take root here"

SITE=$SIDE/site
NODE=$(hostname -s)
mkdir -p "$SITE"/{state,spool}
read -r ctld_port slurmd_port < <(python3 -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for one in sockets:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))')
head -c 1024 /dev/urandom >"$SITE/key"
chmod 600 "$SITE/key"
cat >"$SITE/slurm.conf" <<END
ClusterName=site
SlurmctldHost=$NODE(127.0.0.1)
SlurmctldPort=$ctld_port
SlurmdPort=$slurmd_port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$SITE/munge
CredType=cred/munge
StateSaveLocation=$SITE/state
SlurmdSpoolDir=$SITE/spool
SlurmctldPidFile=$SITE/slurmctld.pid
SlurmdPidFile=$SITE/slurmd.pid
SlurmctldLogFile=$SITE/slurmctld.log
SlurmdLogFile=$SITE/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=pmi2
ReturnToService=2
KillWait=5
NodeName=$NODE NodeAddr=127.0.0.1 CPUs=8 State=IDLE
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$SITE/slurm.conf

daemons=()
end() {
    local status=$? pid
    trap - EXIT
    timeout 5 scancel --user root 2>/dev/null || true
    # The last one first: the node tells the controller, and both ask MUNGE.
    for ((pid = ${#daemons[@]} - 1; pid >= 0; pid--)); do
        kill -TERM "${daemons[pid]}" 2>/dev/null || true
        eventually 5 is_gone "${daemons[pid]}" || true
    done
    clean_up "$status"
}
trap end EXIT
munged --foreground --force --num-threads=2 --socket="$SITE/munge" --key-file="$SITE/key" --log-file="$SITE/munged.log" \
    --pid-file="$SITE/munged.pid" --seed-file="$SITE/seed" >"$SITE/munged.out" 2>&1 &
daemons+=($!)
eventually 5 test -S "$SITE/munge" || skip "munged does not run here: $(tail -n 1 "$SITE/munged.out")"
slurmctld -D -f "$SLURM_CONF" >"$SITE/slurmctld.out" 2>&1 &
daemons+=($!)
slurmd -D -f "$SLURM_CONF" -N "$NODE" >"$SITE/slurmd.out" 2>&1 &
daemons+=($!)
is_up() { [ "$(timeout 5 sinfo --noheader --format=%T 2>/dev/null)" = idle ]; }
eventually 15 is_up || skip "Slurm does not run here: $(tail -qn 1 "$SITE/slurmctld.log" "$SITE/slurmd.log" | tr '\n' ' ')"

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
are_done() { [ -z "$(squeue --noheader)" ]; }

first=$(submit first -- "$SIDE/checkpoint.mpich" nested "$SIDE/first" 4 2 100)
second=$(submit second -- "$SIDE/checkpoint.mpich" nested "$SIDE/second" 4 2 100)
# shellcheck disable=SC2016 # for the tasks' shells
array=$(submit array --array=1-3 --ntasks=1 -- sh -c 'exec "$0" collective "$1-$SLURM_ARRAY_TASK_ID" 2' \
    "$SIDE/checkpoint.mpich" "$SIDE/array")
eventually 40 are_done || fail "the jobs do not end: $(squeue)"
tail -n +1 "$SIDE"/{first,second,array}-*.out
[ "$(cat "$SIDE"/{first,second,array}-*.out | grep -c 'verified')" -eq 5 ] || fail "not all jobs have written what they should"

# --- One after the other, each by its name: the tasks of an array have numbers of their own, the last of them the array's.
apart 5
jobs=$(coordinator_says -r '[.finished[].label] | unique | .[]')
for job in "$first" "$second" $((array + 1)) $((array + 2)) "$array"; do
    grep -qx "job $job\.0 (simulation)" <<<"$jobs" || fail "job $job is not there by its name: $jobs"
done
