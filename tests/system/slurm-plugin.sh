#!/usr/bin/env bash
# The plugin for Slurm: jobs that say `--iogate-turns` and `--iogate-weight` and nothing else take turns, by their numbers and weights, and are
# known at a mount; what is asked wrongly is refused; who may have how much is the node's word; without iogate jobs go on. A Slurm of one node,
# with its own daemons, ports and key.
# limit: 120
# variants: fifo
# alone: its daemons give up on a busy machine
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/system/slurm.bash
. "$(dirname "$0")/slurm.bash"

needs jq python3
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
echo '#include <slurm/spank.h>' | cc -E - >/dev/null 2>&1 || skip "there are no headers of Slurm (scripts/setup installs them)"
"$ROOT/slurm/build" >/dev/null
begin_slurm

coord=unix:$SIDE/coord
data=$SIDE/data
mkdir "$data"
cd "$data" # jobs run where they are submitted
# plug [WORD...]: what the site says from now on. Slurm is to stop jobs that the plugin refuses, unless the first word is optional.
plug() {
    local how=required
    [ "${1:-}" != optional ] || { how=optional && shift; }
    echo "$how $ROOT/target/slurm/iogate.so coord=$coord library=$(dirname "$IOGATE")/libiogate_preload.so patience=1s $*" >"$SITE/plugstack.conf"
}
coordinate() {
    "$IOGATE" coord serve --listen "$coord" --state "$SIDE/state" --set order=weighted >>"$WORK/coord.log" 2>&1 &
    COORDINATOR=$!
    eventually 10 test -S "$SIDE/coord" || fail "the coordinator does not listen: $(cat "$WORK/coord.log")"
}
coord_says() { "$IOGATE" coord status --json "$coord" | jq "$@"; }
# holds EXPRESSION: of jq, of the coordinator's status.
holds() { coord_says -e "$1" >/dev/null; }

# says_once STATUS PATTERN COMMAND...: refused, by one line of the plugin's.
says_once() {
    local try
    for try in 1 2 3 4 5; do
        # In a shell of its own, and without the trap that stops Slurm, so that it may be asked again.
        if (trap - EXIT && refused "$@"); then break; fi
        # On a busy machine Slurm can lose what a task says that ends before its output is connected.
        grep -q 'io_init_msg' "$SIDE/refused" && [ "$try" -lt 5 ] || fail "as it says above"
    done
    [ "$(grep -c 'iogate: ' "$SIDE/refused")" -eq 1 ] || fail "expected one line of the plugin's"
}

coordinate
plug weight_max=4

echo "== what is asked wrongly"
srun=(srun --quiet --immediate=60)
says_once any "iogate-weight: expected a whole number from 1 to 10000, got '0'" "${srun[@]}" --iogate-weight=0 true
says_once any "from 1 to 10000, got '4x'" "${srun[@]}" --iogate-weight=4x true
says_once any "at most 4, which is what this site allows, got 5" "${srun[@]}" --iogate-weight=5 true
says_once any "IOGATE_WEIGHT: expected a weight of at most 4.*got 100" env IOGATE_WEIGHT=100 "${srun[@]}" true
says_once any "iogate-turns: expected DIR or DIR=NAME.*got 'scratch'" "${srun[@]}" --iogate-turns=scratch true
says_once any "iogate-turns: expected DIR.*got '/a=,/b'" "${srun[@]}" --iogate-turns=/a=,/b true
says_once any "iogate-turns: $SIDE/none: No such file or directory on this node" "${srun[@]}" --iogate-turns="$SIDE/none" true
says_once any "iogate-turns: $0: this is not a directory" "${srun[@]}" --iogate-turns="$data,$0" true
says_once any "iogate-files: expected a glob.*got 'a:b'" "${srun[@]}" --iogate-files=a:b true
says_once any "a path begins with a slash" "${srun[@]}" --iogate-files=run/x true
printf '#!/bin/sh\ntouch %s/ran\n' "$data" >"$SIDE/job"
says_once any "at most 4" sbatch --iogate-weight=9 "$SIDE/job"
says_once any "at most 4" salloc --immediate=60 --iogate-weight=9 touch "$data/ran"
[ ! -e "$data/ran" ] || fail "a job ran that was refused"
plug wieght=2
says_once any "plugstack.conf: expected coord=.*got 'wieght=2'" "${srun[@]}" true

echo "== the node has the last word"
mkdir "$SIDE/other"
sed "s|^PlugStackConfig=.*|PlugStackConfig=$SIDE/other/plugstack.conf|" "$SITE/slurm.conf" >"$SIDE/other/slurm.conf"
plug weight_max=8
cp "$SITE/plugstack.conf" "$SIDE/other/plugstack.conf"
plug weight_max=4
says_once any "at most 4.*got 8" env SLURM_CONF="$SIDE/other/slurm.conf" "${srun[@]}" --iogate-weight=8 touch "$data/ran"
[ ! -e "$data/ran" ] || fail "a job ran with more than it may have"
# Where Slurm does not stop it for that, it has what it may have.
plug optional weight_max=4
# shellcheck disable=SC2016 # for the job's shell
SLURM_CONF=$SIDE/other/slurm.conf "${srun[@]}" --iogate-weight=8 sh -c 'echo "$IOGATE_WEIGHT"' >"$data/weight" || fail "the job does not run"
[ "$(cat "$data/weight")" = 4 ] || fail "expected the weight 4, got $(cat "$data/weight")"

# A program as it is, which writes a file, waits until it may close it, and does so again: its turn is as long as its file is open.
cat >"$SIDE/writer.py" <<'END'
import pathlib, sys, time
name, rounds = sys.argv[1], int(sys.argv[2])
for number in range(rounds):
    while number and not pathlib.Path(f"{name}.again").exists():
        time.sleep(0.02)
    with open(f"{name}.{number}", "wb", buffering=0) as file:
        file.write(bytes(100_000))
        pathlib.Path(f"{name}.{number}.wrote").touch()
        while not pathlib.Path(f"{name}.{number}.go").exists():
            file.write(bytes(1000))
            time.sleep(0.1)
END
# writer NAME ROUNDS OPTION...: a job that runs it.
declare -A STEPS=()
writer() {
    local name=$1 rounds=$2
    shift 2
    "${srun[@]}" --job-name="$name" --account=physics "$@" python3 "$SIDE/writer.py" "$SIDE/flags.$name" "$rounds" >"$SIDE/$name.out" 2>&1 &
    STEPS[$name]=$!
}
ends() { wait "${STEPS[$1]}" || fail "the job $1 failed: $(cat "$SIDE/$1.out")"; }
turns=(--iogate-turns="$SIDE=scratch" "--iogate-files=$SIDE/flags.*[0-9]")

echo "== two jobs, one after the other, and the heavier one first"
plug weight_max=8
writer light 2 "${turns[@]}" --iogate-weight=1
eventually 20 test -e "$SIDE/flags.light.0.wrote" || fail "the first job does not write: $(cat "$SIDE/light.out")"
holds '.holders[0] | (.label | test("^job [0-9]+\\.0 \\(light(, physics)?\\)$")) and .place == "scratch"' || fail "the coordinator does not know the job"
writer heavy 2 "${turns[@]}" --iogate-weight=8
eventually 20 holds '.waiting == 1' || fail "the second job does not wait: $(coord_says . | head -c 2000)"
[ ! -e "$SIDE/flags.heavy.0.wrote" ] || fail "two jobs write at once"
# What it holds from here on counts: the other one then holds less, for its weight.
sleep 1
: >"$SIDE/flags.light.0.go"
eventually 20 test -e "$SIDE/flags.heavy.0.wrote" || fail "the second job has no turn: $(cat "$SIDE/heavy.out")"
: >"$SIDE/flags.heavy.0.go"
eventually 20 holds '.finished | length == 2' || fail "the turns do not end"
writer third 1 "${turns[@]}"
eventually 20 test -e "$SIDE/flags.third.0.wrote" || fail "the third job does not write: $(cat "$SIDE/third.out")"
: >"$SIDE/flags.light.again"
eventually 20 holds '.waiting == 1' || fail "the first job does not ask again"
: >"$SIDE/flags.heavy.again"
eventually 20 holds '.waiting == 2' || fail "the second job does not ask again"
coord_says -c '.waiters[] | [.position, .label]'
holds '.waiters[0].label | test("heavy")' || fail "the heavier job, which came later, is not the first"
for name in light.1 heavy.1 third.0; do : >"$SIDE/flags.$name.go"; done
for name in light heavy third; do ends "$name"; done
coord_says -c '.finished[] | [.label, .place, .held_ms, .ago_ms]'
# shellcheck disable=SC2016 # variables of jq
holds '[.finished[] | {token, from: (-.ago_ms - .held_ms), to: (-.ago_ms)}]
    | length == 5 and all(.[] as $a | .[] | select(.token != $a.token) | .from + 3 >= $a.to or $a.from + 3 >= .to; .)' || fail "turns overlap"

echo "== by sbatch and salloc, and in all steps"
rm -f "$SIDE"/flags.*
cat >"$SIDE/job" <<END
#!/bin/bash
touch "$SIDE/flags.step.0.go"
srun --quiet python3 "$SIDE/writer.py" "$SIDE/flags.step" 1
END
job=$(sbatch --parsable --job-name=batch --output="$SIDE/batch.out" "${turns[@]}" --iogate-weight=3 "$SIDE/job")
eventually 40 no_jobs || fail "the job does not end: $(squeue)"
holds ".finished[0].label | startswith(\"job $job.0 (batch\")" || fail "no turn of the job's step: $(cat "$SIDE/batch.out") $(coord_says -c .finished[0])"
rm -f "$SIDE"/flags.*
: >"$SIDE/flags.alloc.0.go"
salloc --quiet --immediate=60 --job-name=alloc "${turns[@]}" srun --quiet python3 "$SIDE/writer.py" "$SIDE/flags.alloc" 1 || fail "salloc failed"
holds '.finished[0].label | test("\\(alloc[,)]")' || fail "no turn of the step in an allocation: $(coord_says -c .finished[0])"

echo "== as the site says, unless the job says otherwise"
before=$(coord_says '.finished | length')
plug "turns=$SIDE=scratch,/no/such/directory" "files=*.ckpt" weight=2
# shellcheck disable=SC2016 # for the job's shell
"${srun[@]}" sh -c 'echo "$IOGATE_WEIGHT $IOGATE_PLACES" >said; echo x >a.txt; echo x >a.ckpt' || fail "the job fails"
[ "$(cat said)" = "2 $SIDE=scratch" ] || fail "expected the site's settings, got $(cat said)"
holds ".finished | length == $before + 1" || fail "expected one turn, for the file that counts"
"${srun[@]}" --iogate-turns=none sh -c 'echo x >b.ckpt' || fail "the job fails"
IOGATE_POLICY=none "${srun[@]}" sh -c 'echo x >c.ckpt' || fail "the job fails"
holds ".finished | length == $before + 1" || fail "a turn was taken for a job that wants none"
# What a job says of its files is enough, whatever the node has of the site's directories.
"${srun[@]}" --iogate-files='*.h5' sh -c 'echo x >f.ckpt; echo x >f.h5' || fail "a job that says its files fails where a directory of the site's lacks"
holds ".finished | length == $before + 2" || fail "expected one turn more, for the file that the job means"
plug
"${srun[@]}" --iogate-files='*.h5' sh -c 'echo x >g.h5' || fail "a job that says its files fails where the site says nothing of turns"
holds ".finished | length == $before + 3" || fail "expected a turn for a job that says only its files"

# Steps of a batch job have its environment: its own file counts, the one of the step that wants no turns does not, the next one does.
cat >"$SIDE/job" <<END
#!/bin/sh
echo x >h.ckpt
srun --quiet --iogate-turns=none sh -c 'echo x >i.ckpt; touch i.ends'
srun --quiet --iogate-turns="$SIDE=scratch" sh -c 'echo x >j.ckpt; touch j.ends'
END
# submit OPTION...: submits it, and waits for its end.
submit() {
    rm -f ./*.ends
    sbatch --output="$SIDE/batch.out" "$@" "$SIDE/job"
    eventually 40 no_jobs || fail "the job does not end: $(squeue)"
    [ -e i.ends ] && [ -e j.ends ] || fail "a step of the job fails: $(cat "$SIDE/batch.out")"
}
plug "turns=$SIDE=scratch" "files=*.ckpt"
submit
holds ".finished | length == $before + 5" || fail "expected turns for two of three files, as the site says: $(coord_says -c .finished)"
plug
submit --iogate-turns="$SIDE=scratch" --iogate-files='*.ckpt'
holds ".finished | length == $before + 7" || fail "expected turns for two of three files, as the job says: $(coord_says -c .finished)"

echo "== at a mount: which job it is"
mount_gate --fair job
plug weight_max=8
# shellcheck disable=SC2016 # for the job's shell
"${srun[@]}" sh -c 'echo "$SLURM_JOB_ID" >"$0/number"; dd if=/dev/zero of="$1/file" bs=64k count=4 status=none' "$SIDE" "$MNT" || fail "the job fails"
"$IOGATE" status "$MNT" | tee "$SIDE/status"
job=$(cat "$SIDE/number")
grep -Eq "^job $job " "$SIDE/status" || fail "the mount does not know the job $job"
unmount_gate

echo "== at a mount: the account that jobs are charged to, as Slurm says it to them"
printf 'by = "account/job"\n[group.physics]\nmax = "2MiB/s"\n' >"$SIDE/accounts.toml"
mount_gate --policy "$SIDE/accounts.toml"
# charged ACCOUNT FILE: 3 MiB of a job of an account.
charged() { "${srun[@]}" --account="$1" dd if=/dev/zero of="$MNT/$2" bs=128k count=24 status=none; }
charged physics one &
one=$!
charged physics two &
two=$!
eventually 20 test -s "$MNT/one" || fail "the first job of the account does not write"
eventually 20 test -s "$MNT/two" || fail "the second job of the account does not write"
charged biology three || fail "a job of an account without a cap fails"
! is_gone "$one" || ! is_gone "$two" || fail "a job of an account without a cap is held to that of another one"
wait "$one" && wait "$two" || fail "a job of the capped account fails"
"$IOGATE" status "$MNT" | tee "$SIDE/status"
grep -q '^account physics' "$SIDE/status" && grep -q '^account biology' "$SIDE/status" || fail "the mount does not know the accounts"
"$IOGATE" status --json "$MNT" | jq -e '[.now[] | select(.is_branch and .max == 2097152)] | .[0].capped_ns > 1000000000' >/dev/null ||
    fail "the account was not held to its cap: $("$IOGATE" status --json "$MNT" | jq -c .now)"
unmount_gate

echo "== without iogate"
kill -KILL "$COORDINATOR" && { wait "$COORDINATOR" || true; } 2>/dev/null
rm -f "$SIDE/coord"
"${srun[@]}" --iogate-turns="$SIDE=scratch" sh -c 'echo x >d.ckpt' 2>"$SIDE/said" || fail "a job fails for want of a coordinator: $(cat "$SIDE/said")"
[ "$(cat d.ckpt)" = x ] || fail "the job has written nothing"
grep -q "without" "$SIDE/said" || fail "nobody says that there is no coordinator: $(cat "$SIDE/said")"
plug required
says_once any "no coordinator answers at $coord" "${srun[@]}" --iogate-turns="$SIDE=scratch" sh -c 'echo x >e.ckpt'
[ ! -e e.ckpt ] || fail "a job ran that must not without a coordinator"
"${srun[@]}" true || fail "a job fails that asks for nothing"
echo "required $ROOT/target/slurm/iogate.so library=/no/such.so" >"$SITE/plugstack.conf"
"${srun[@]}" --iogate-turns="$SIDE" true 2>"$SIDE/said" || fail "a job fails for want of a coordinator's name: $(cat "$SIDE/said")"
grep -q "without turns: nobody says where a coordinator is" "$SIDE/said" || fail "nobody says that it is not set up: $(cat "$SIDE/said")"
IOGATE_COORD=$coord "${srun[@]}" --iogate-turns="$SIDE" true 2>"$SIDE/said" || fail "a job fails for want of the library: $(cat "$SIDE/said")"
grep -q "there is no /no/such.so" "$SIDE/said" || fail "nobody says that there is no library: $(cat "$SIDE/said")"
echo "required $ROOT/target/slurm/iogate.so library=/no/such.so required" >"$SITE/plugstack.conf"
IOGATE_COORD=$coord says_once any "no turns: there is no /no/such.so" "${srun[@]}" --iogate-turns="$SIDE" true
