#!/usr/bin/env bash
# The runs of a scenario as an array of Slurm: one task is left out, one is killed in the midst of writing, and the merge names both; run
# again alone, they give the bytes of one run of everything. A Slurm of one node.
# limit: 120
# variants: fifo
# alone: its daemons give up on a busy machine
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/system/slurm.bash
. "$(dirname "$0")/slurm.bash"

ROOT=$(cd "$(dirname "$0")/../.." && pwd)
begin_slurm
PATH=$(dirname "$IOGATE"):$PATH
export PATH

cat >sweep.toml <<'END'
title = "a sweep"
repetitions = 6
clients.nodes = 4
servers = { nodes = 2, device = "hdd", gate.scheduler = "fifo" }
network = { latency = "50us", jitter = "100us", bandwidth = "1Gbit/s" }
app = [{ name = "a", count = 2, processes = 4, pattern = "strided", op = "read", bytes = "1MiB", request = "64KiB" }]
sweep = { "servers.gate.scheduler" = ["fifo", "aioli", "to-agg"] }
END
iogate sim sweep.toml --json whole.json --csv whole.csv >whole.txt

# submit TASKS [COMMAND]: shards of the sweep; COMMAND is what their shells do first.
submit() {
    sbatch --quiet --array="$1" --output="$SIDE/task-%a.out" \
        --wrap "exec bash -c '${2:-:}; . $ROOT/examples/slurm-sweep.sbatch' sweep.sh sweep.toml kept 4"
}
merge() { iogate merge kept --json merged.json --csv merged.csv >merged.txt 2>merged.err; }

submit 1,4
# No file may be longer than this: the second task is killed by a signal within a line.
submit 2 'ulimit -c 0 -f 12'
eventually 40 no_jobs || fail "the array does not end: $(squeue)"
tail -n +1 task-*.out
! merge || fail "shards were joined that are not there"
cat merged.err
grep -q '2/4 was interrupted ([1-4] of 5 runs), 3/4 is missing' merged.err || fail "the merge does not say what lacks"
[ ! -e merged.json ] || fail "a merge that fails leaves a file"

submit 2,3
eventually 40 no_jobs || fail "the tasks do not end: $(squeue)"
tail -n +1 task-*.out
grep -q 'sweep.2-of-4.runs: line [0-9]* is broken off' task-2.out || fail "the half line was not noticed"
grep -q 'sweep.2-of-4.runs: [1-4] of 5 runs are there' task-2.out || fail "the task has not gone on where it was"
merge || fail "the shards cannot be joined: $(cat merged.err)"
cmp whole.json merged.json
cmp whole.csv merged.csv
cmp whole.txt merged.txt
