#!/usr/bin/env bash
# A bench of two readers on a slow modelled disk, simulated and real, and an interrupted one that leaves nothing behind. The requests and
# their bytes are those of the simulation, with fifo and with aioli. How far the times are apart is said, not judged: whatever else runs
# on the machine takes its time from the real run only.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs jq
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
cat >"$SIDE/readers.toml" <<'END'
title = "Two readers"
repetitions = 2
clients.nodes = 2
servers = { nodes = 1, device = "aioli-ide" }
app = [
    { name = "one", processes = 1, pattern = "contiguous", op = "read", bytes = "4MiB", request = "64KiB" },
    { name = "two", processes = 1, pattern = "contiguous", op = "read", bytes = "4MiB", request = "64KiB" },
]
[sweep]
"servers.gate.scheduler" = ["fifo", "aioli"]
END
mkdir "$SIDE/scratch"
nothing_left() {
    [ -z "$(ls -A "$SIDE/scratch")" ] || fail "left behind: $(ls -A "$SIDE/scratch")"
    ! findmnt --raw --noheadings --output TARGET | grep -F -- "$SIDE/scratch" || fail "something stayed mounted"
}
bench() { "$IOGATE" bench "$SIDE/readers.toml" --dir "$SIDE/scratch" "$@"; }

bench --json "$SIDE/out.json" --html "$SIDE/out.html" || fail "the bench failed"
nothing_left
# A line for each scheduler and metric: simulated and real, in seconds.
jq -r 'def value(of): .metrics[] | select(.name == of).estimate.mean;
    .points | group_by(.settings["servers.gate.scheduler"])[]
    | (.[] | select(.settings.by == "simulation")) as $simulated | (.[] | select(.settings.by == "real run")) as $real
    | ("makespan", "completion_mean") as $name
    | "\($real.settings["servers.gate.scheduler"]) \($name) \($simulated | value($name)) \($real | value($name))"' \
    "$SIDE/out.json" >"$SIDE/compared"
cat "$SIDE/compared"
[ "$(wc -l <"$SIDE/compared")" -eq 4 ] || fail "expected two times of two schedulers, simulated and real"
jq -e '[.points[] | .layers[0].metrics[] | select(.name == "requests" or .name == "request_bytes").estimate.mean]
    | unique == [128, 65536]' "$SIDE/out.json" >/dev/null || fail "expected 128 requests of 64 KiB everywhere"
grep -q '<svg' "$SIDE/out.html" || fail "the report has no pictures"

echo "writes, with barriers, on two servers"
bench --seeds 1 --store memory --no-sim --json "$SIDE/out.json" --set servers.nodes=2 --set app.one.op=write \
    --set app.one.processes=3 --set app.one.barrier=call --set app.one.iterations=2 --set app.two.outstanding=4
nothing_left
jq -e '[.points[].layers[0].metrics[] | select(.name == "requests").estimate.mean] | unique == [7 * 64]' "$SIDE/out.json" \
    >/dev/null || fail "expected 7 x 64 requests"

echo "schedulers that are chosen, simulated and real, in both ways"
for way in mount network; do
    bench --seeds 1 --through $way --set servers.gate.scheduler=auto --json "$SIDE/out.json" || fail "the bench failed with auto"
    nothing_left
    jq -e '[.points[].layers[0] | .scheduler, (.metrics | any(.name == "choices"))] == ["auto", true, "auto", true]' "$SIDE/out.json" \
        >/dev/null || fail "nothing is chosen through $way"
done

for signal in INT TERM; do
    interruptible "$IOGATE" bench "$SIDE/readers.toml" --dir "$SIDE/scratch" --set app.one.bytes=1GiB >"$SIDE/interrupted" 2>&1 &
    pid=$!
    worker_runs() { pgrep -P "$pid" >/dev/null; }
    eventually 10 worker_runs || fail "no process was started"
    workers=$(pgrep -P "$pid")
    sleep 0.3
    kill -"$signal" "$pid"
    eventually 10 is_gone "$pid" || fail "it goes on after SIG$signal"
    ! wait "$pid" || fail "expected it to fail when it is interrupted"
    grep -q interrupted "$SIDE/interrupted" || fail "it does not say that it was interrupted"
    for worker in $workers; do
        is_gone "$worker" || fail "process $worker is left"
    done
    nothing_left
done

bench_refused() { refused 2 "$1" "$IOGATE" bench "$SIDE/readers.toml" --dir "$SIDE/scratch" "${@:2}"; }
bench_refused 'servers.nodes' --set servers.nodes=17
bench_refused 'processes' --set app.one.processes=300
bench_refused 'probed' --set coordination.mechanism=backoff --through network
bench_refused 'clients.gate' --set clients.gate.scheduler=fifo
# A device without a size of its own.
bench_refused 'free space' --set servers.device=unit:1ms --set app.one.op=write --set app.one.bytes=4TiB --set app.one.request=1GiB
bench_refused 'through' --through network --store directory
nothing_left

echo "nodes for one application at a time, and turns"
bench --no-sim --seeds 1 --set 'servers.gate.scheduler=[fifo]' --set clients.nodes=1 --set batch.backfill=false \
    --set 'coordination.mechanism=[none, lock, backoff]' --set coordination.backoff.sleep_fixed=1ms \
    --set coordination.backoff.sleep_unit=1ms --set app.one.op=write --json "$SIDE/turns.json"
# The second starts when the first has ended, so together they take as long as one after the other.
jq -e 'def m($name): .metrics[] | select(.name == $name).estimate.mean;
    [.points[] | m("makespan") >= 1.9 * m("completion_mean")] == [true, true, true]' "$SIDE/turns.json" >/dev/null ||
    fail "an application had no node of its own"
jq -e 'def m($name): .metrics[] | select(.name == $name).estimate.mean;
    [.points[] | m("probes") > 0] == [false, false, true]' "$SIDE/turns.json" >/dev/null || fail "who probes is not as asked for"
nothing_left

echo "through forwarders, interrupted"
"$IOGATE" bench twins-schedulers --quick --dir "$SIDE/scratch" --set app.mpi-io-test.bytes=64MiB \
    --set app.mpi-io-test.processes=8 >"$SIDE/interrupted" 2>&1 &
pid=$!
worker_runs() { pgrep -P "$pid" -f bench-worker >/dev/null; }
eventually 20 worker_runs || fail "no process was started"
nodes=$(pgrep -P "$pid")
sleep 0.3
kill -TERM "$pid"
eventually 10 is_gone "$pid" || fail "it goes on after SIGTERM"
! wait "$pid" || fail "expected it to fail when it is interrupted"
for node in $nodes; do
    is_gone "$node" || fail "process $node is left"
done
nothing_left
