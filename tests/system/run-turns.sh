#!/usr/bin/env bash
# `iogate run`: programs as they are take turns by a real coordinator, one after another; what is asked wrongly is refused; signals and
# exit statuses pass; a coordinator may die.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

coord=unix:$SIDE/socket
start_coordinator() {
    "$IOGATE" coord serve --listen "$coord" --state "$SIDE/state" --set lease=3s >>"$WORK/coordinator.log" 2>&1 &
    coordinator=$!
    eventually 10 test -S "$SIDE/socket" || fail "the coordinator does not listen"
}
start_coordinator
data=$SIDE/data
mkdir "$data"

# take JOB COMMAND...: runs it as a job of its own.
take() {
    local job=$1
    shift
    "$IOGATE" run --coord "$coord" --job "$job" --target "$data=scratch" -- "$@"
}

# Checks the turns that are over: history EXPRESSION, which is Python's, of a list of them, the first one first.
history() {
    "$IOGATE" coord status --json "$coord" | python3 -c "
import json, sys
turns = json.load(sys.stdin)['finished'][::-1]
assert $1, turns" || fail "the turns are not as expected: $1"
}

echo "== what is asked wrongly"
run=("$IOGATE" run)
refused 2 "no coordinator" "${run[@]}" --files '*' -- true
refused 2 "which files are bulk output" "${run[@]}" --coord "$coord" -- true
refused 2 "lock, backoff" "${run[@]}" --coord "$coord" --policy locks --files '*' -- true
refused 2 "HOST:PORT or unix:PATH" "${run[@]}" --coord nowhere --files '*' -- true
refused 2 "character 1: invalid range" "${run[@]}" --coord "$coord" --files '[a' -- true
refused 2 "no colon" "${run[@]}" --coord "$coord" --files 'a:b' -- true
refused 2 "add \*\*" "${run[@]}" --coord "$coord" --files 'a/' -- true
refused 2 "no such file" "${run[@]}" --coord "$coord" --target "$SIDE/none" -- true
refused 2 "not a directory" "${run[@]}" --coord "$coord" --target "$0=x" -- true
refused 2 "no library at" "${run[@]}" --coord "$coord" --files '*' --library "$SIDE/none.so" -- true
echo "no library" >"$SIDE/text.so"
refused 2 "expected a shared library" "${run[@]}" --coord "$coord" --files '*' --library "$SIDE/text.so" -- true
libc=$(ldd /bin/sh | awk '/libc\.so/ { print $3 }')
refused 2 "is another library" "${run[@]}" --coord "$coord" --files '*' --library "$libc" -- true
refused 2 "job: expected a name" "${run[@]}" --coord "$coord" --files '*' --job '' -- true
refused 2 "expected a name after =" "${run[@]}" --coord "$coord" --target "$data=" -- true
refused 2 "unit" "${run[@]}" --coord "$coord" --files '*' --idle 5 -- true
refused 2 "required" "${run[@]}" --coord "$coord" --files '*'
refused 127 "no-such-program cannot be run" "${run[@]}" --coord "$coord" --files '*' -- no-such-program
refused 126 "$data cannot be run" "${run[@]}" --coord "$coord" --files '*' -- "$data"
refused 127 "no-such-program cannot be run" "${run[@]}" --policy none -- no-such-program

echo "== exit statuses and signals"
refused 7 "warning" "${run[@]}" --coord "$coord" --target "$data" -- sh -c 'exit 7'
# shellcheck disable=SC2016 # its own number
refused 143 "warning" "${run[@]}" --coord "$coord" --target "$data" -- sh -c 'kill -TERM $$'
"${run[@]}" --coord "$coord" --target "$data" -- sh -c 'trap "exit 9" TERM; : >'"$SIDE"'/up; while :; do sleep 0.05; done' &
job=$!
eventually 10 test -e "$SIDE/up" || fail "the program does not run"
kill -TERM "$job"
status=0
wait "$job" || status=$?
[ "$status" -eq 9 ] || fail "the program did not get the signal: status $status"
for signal in HUP INT; do
    # As `nohup` and `&` in a script have it.
    status=$(
        trap '' "$signal"
        "${run[@]}" --coord "$coord" --target "$data" -- sh -c "kill -$signal \$\$; echo goes on" 2>>"$WORK/ignored.log"
    ) || fail "a program that was to ignore $signal has been ended by it"
    [ "$status" = "goes on" ] || fail "a program that was to ignore $signal said: $status"
done
history "turns == []"

echo "== two jobs"
# shellcheck disable=SC2016 # the jobs' shells expand it
work='for round in 1 2 3; do
    dd if=/dev/zero of="$1/$2.$round" bs=64k count=8 status=none
    seq 10000 | gzip >"$1/$2.$round.gz"
done'
take one bash -c "$work" - "$data" one &
first=$!
take two python3 -c '
import sys
for round in range(6):
    with open(f"{sys.argv[1]}/two.{round}", "wb") as file:
        for piece in range(8):
            file.write(bytes(65536))
' "$data"
wait "$first" || fail "a job failed"
for round in 1 2 3; do
    [ "$(stat -c %s "$data/one.$round")" -eq 524288 ] || fail "a file is not complete"
    zcat "$data/one.$round.gz" | cmp - <(seq 10000) || fail "a file is not complete"
done
history "[turn['label'] for turn in sorted(turns, key=lambda turn: turn['label'])] == ['one'] * 6 + ['two'] * 6"
history "all(turn['place'] == 'scratch' and turn['bytes'] > 0 and turn['ending'] == 'released' for turn in turns)"
history "all(a['token'] < b['token'] for a, b in zip(turns, turns[1:]))"
# Times are in milliseconds: ends and beginnings may seem to be off by a few.
history "all(b['ago_ms'] + b['held_ms'] <= a['ago_ms'] + 5 for a, b in zip(turns, turns[1:]))"

echo "== an application's name"
IOGATE_APP=solver "$IOGATE" run --coord "$coord" --target "$data=scratch" -- bash -c "echo text >$data/named" || fail "the program failed"
history "turns[-1]['label'].startswith('solver@')"

echo "== what matches nothing"
"$IOGATE" run --coord "$coord" --files '*.none' --files "$data/*.dat" -- bash -c "echo text >$data/a.dat" 2>"$SIDE/said"
grep -q "fits '\*\.none'" "$SIDE/said" || fail "no warning: $(cat "$SIDE/said")"
[ "$(wc -l <"$SIDE/said")" -eq 1 ] || fail "more than one warning: $(cat "$SIDE/said")"
take matched bash -c "echo text >$data/b.dat" 2>"$SIDE/said"
[ ! -s "$SIDE/said" ] || fail "a warning, though a file was written: $(cat "$SIDE/said")"

echo "== a coordinator that dies"
slow='import sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    for piece in range(10):
        file.write(bytes(100_000))
        time.sleep(0.1)'
take slow python3 -c "$slow" "$data/slow" 2>"$SIDE/said" &
job=$!
eventually 10 test -s "$data/slow" || fail "nothing is written"
kill -KILL "$coordinator" && { wait "$coordinator" || true; } 2>/dev/null
rm -f "$SIDE/socket"
start_coordinator
take next bash -c "echo text >$data/next" || fail "the next job failed"
[ "$(stat -c %s "$data/slow")" -eq 1000000 ] || fail "the next job did not wait for the one before: $(cat "$SIDE/said")"
wait "$job" || fail "the job failed: $(cat "$SIDE/said")"
history "[turn['label'] for turn in turns] == ['slow', 'next']"
kill -KILL "$coordinator" && { wait "$coordinator" || true; } 2>/dev/null
"$IOGATE" run --coord "$coord" --patience 10ms --target "$data" -- bash -c "echo text >$data/without" 2>"$SIDE/said"
[ "$(cat "$data/without")" = text ] || fail "the program did not go on"
grep -q "without" "$SIDE/said" || fail "nobody says that there is no coordinator: $(cat "$SIDE/said")"
! "$IOGATE" run --coord "$coord" --patience 10ms --strict --target "$data" -- bash -c "echo text >$data/strict" 2>/dev/null ||
    fail "the program went on though it must not"
[ ! -s "$data/strict" ] || fail "something was written without a turn"

if unshare -pf --mount-proc true 2>/dev/null; then
    echo "== in a container"
    rm -f "$SIDE/socket"
    start_coordinator
    unshare -pf --mount-proc "$IOGATE" run --coord "$coord" --job inside --target "$data=scratch" -- dd if=/dev/zero of="$data/inside" \
        bs=64k count=8 status=none || fail "the job in the container failed"
    history "turns[-1]['label'] == 'inside' and turns[-1]['bytes'] == 524288"
fi
