# shellcheck shell=bash
# A Slurm of one node, with its own daemons, ports and key. Sourced by tests, after lib.sh.

: "${SIDE:?}"
PATH=$PATH:/usr/sbin:/sbin
slurm_daemons=()

# begin_slurm: starts it, or skips the test where it cannot run.
begin_slurm() {
    local program ctld_port slurmd_port NODE
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
PlugStackConfig=$SITE/plugstack.conf
END
    # Read anew by each command and by each step.
    : >"$SITE/plugstack.conf"
    export SLURM_CONF=$SITE/slurm.conf
    trap end_slurm EXIT
    munged --foreground --force --num-threads=2 --socket="$SITE/munge" --key-file="$SITE/key" --log-file="$SITE/munged.log" \
        --pid-file="$SITE/munged.pid" --seed-file="$SITE/seed" >"$SITE/munged.out" 2>&1 &
    slurm_daemons+=($!)
    eventually 5 test -S "$SITE/munge" || skip "munged does not run here: $(tail -n 1 "$SITE/munged.out")"
    slurmctld -D -f "$SLURM_CONF" >"$SITE/slurmctld.out" 2>&1 &
    slurm_daemons+=($!)
    slurmd -D -f "$SLURM_CONF" -N "$NODE" >"$SITE/slurmd.out" 2>&1 &
    slurm_daemons+=($!)
    eventually 15 slurm_is_up || skip "Slurm does not run here: $(tail -qn 1 "$SITE/slurmctld.log" "$SITE/slurmd.log" | tr '\n' ' ')"
}

slurm_is_up() { [ "$(timeout 5 sinfo --noheader --format=%T 2>/dev/null)" = idle ]; }

end_slurm() {
    local status=$? pid
    trap - EXIT
    timeout 5 scancel --user root 2>/dev/null || true
    # The last one first: the node tells the controller, and both ask MUNGE.
    for ((pid = ${#slurm_daemons[@]} - 1; pid >= 0; pid--)); do
        kill -TERM "${slurm_daemons[pid]}" 2>/dev/null || true
        eventually 5 is_gone "${slurm_daemons[pid]}" || true
    done
    clean_up "$status"
}

no_jobs() { [ -z "$(squeue --noheader)" ]; }
