#!/usr/bin/env bash
# Perfetto's own trace processor takes the traces of simulated runs: it complains of nothing, drops nothing, and its sums are those of the
# report.
# limit: 120
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

HERE=$(dirname "$0")
ROOT=$(cd "$HERE/../.." && pwd)
PATH=$ROOT/target/python/bin:$PATH
needs jq node
[ -e "$ROOT/target/perfetto/trace_processor.wasm" ] || skip "there is no trace processor in target/perfetto: scripts/trace-processor"

# asked TRACE QUERY...: the rows of each query, on a line.
asked() {
    node "$HERE/trace_processor.mjs" "$ROOT/target/perfetto" "$@" 2>said || { cat said >&2 && return 1; }
}

ERRORS="SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0 ORDER BY name"
TRACKS="slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid) JOIN process USING (upid)"
# A process is a server or an application: these have their numbers from here on.
APPS=1000000
QUERIES=(
    "$ERRORS"
    "SELECT count(*) AS slices, max(depth) AS depth FROM slice"
    "SELECT process.name AS name, sum(dur) AS busy_ns FROM $TRACKS WHERE pid < $APPS GROUP BY upid ORDER BY pid"
    "SELECT count(*) AS dispatches, sum(EXTRACT_ARG(slice.arg_set_id, 'args.requests')) AS requests,
        sum(EXTRACT_ARG(slice.arg_set_id, 'args.bytes')) AS bytes FROM $TRACKS WHERE pid < $APPS"
    # Of what is in service at once, each instant counts once.
    "SELECT sum(max(0, ts + dur - max(ts, before))) AS serving_ns FROM (SELECT ts, dur, coalesce(max(ts + dur) OVER
        (PARTITION BY upid ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM $TRACKS WHERE pid < $APPS)"
    "SELECT process.name AS name, count(DISTINCT utid) AS processes, sum(iif(slice.name = 'compute', dur, 0)) AS compute_ns,
        sum(iif(slice.name = 'I/O', dur, 0)) AS io_ns, max(ts + dur) AS end_ns
        FROM $TRACKS WHERE pid >= $APPS GROUP BY upid ORDER BY pid"
    "SELECT process.name AS process, thread.name AS thread FROM $TRACKS GROUP BY utid ORDER BY pid, tid"
)

# What the report has for each query, of the first run of its first point. $slots: the most dispatches that a server has in service at once.
# shellcheck disable=SC2016 # jq's variables
REPORTED='
    .points[0] as $point | $point.timeline as $run
    | def first($name): .metrics[] | select(.name == $name) | .values[0];
    def of_servers($name): $point.layers[] | select(.name == "servers") | first($name);
    ([$run.apps[] | { key: (.id | tostring), value: . }] | from_entries) as $apps
    | [$run.recording.servers[] | { name: "server \(.server)", busy_ns: ([.shares[].busy_ns[]] | add) }] as $servers
    | [$run.recording.apps | sort_by(.app)[] | $apps[.app | tostring] as $app | {
        name: $app.name, processes, compute_ns: (.compute_ns | add // 0), io_ns: (.io_ns | add // 0),
        end_ns: ($run.origin_ns + $app.end_ns)
    }] as $processes
    | [],
    [{ slices: $slices, depth: 0 }],
    $servers,
    [{
        dispatches: of_servers("dispatches"), requests: of_servers("requests"),
        bytes: (of_servers("dispatches") * of_servers("dispatch_bytes") | round)
    }],
    [{ serving_ns: ($point | first("device_busy") * first("makespan") * ($servers | length) * 1e9 | round) }],
    $processes,
    [
        ($servers[] | { process: .name, thread: "dispatches \(range(1; $slots + 1))" }),
        ($processes[] | { process: .name, thread: "rank \(range(.processes))" })
    ]'

# agrees NAME SLOTS SCENARIO [FLAG...]: simulates it, and the trace processor says of the trace what the report says of the run.
agrees() {
    local name=$1 slots=$2 slices
    shift 2
    "$IOGATE" sim "$@" --trace "$name.trace" --json "$name.json" >"$name.text" || fail "$name: no run"
    slices=$(jq '[.traceEvents[] | select(.ph == "X")] | length' "$name.trace")
    [ "$slices" -gt 100 ] || fail "$name: a trace of $slices slices"
    asked "$name.trace" "${QUERIES[@]}" >"$name.asked" || fail "$name: the trace processor does not take it"
    jq --compact-output --argjson slots "$slots" --argjson slices "$slices" "$REPORTED" "$name.json" >"$name.reported"
    diff <(jq --sort-keys . "$name.reported") <(jq --sort-keys . "$name.asked") ||
        fail "$name: the trace processor (>) does not say what the report says (<)"
}

# That it complains: of two slices of a thread that overlap it drops one.
cat >overlap.trace <<'END'
{"traceEvents": [
{"name": "a", "ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 2},
{"name": "b", "ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}
END
[ "$(asked overlap.trace "$ERRORS" | jq -c 'map(.value)')" = '[1]' ] || fail "it has nothing to say of slices that overlap"

# Dispatches of several requests; those of a server that overlap are on threads of their own.
cat >parallel.toml <<'END'
title = "two applications"
repetitions = 1
clients.nodes = 4
servers = { nodes = 3, device = "edel:slots=2", gate = { scheduler = "to-agg", depth = 4 } }
network = { latency = "50us", jitter = "100us" }
app = [
    { name = "reader", processes = 12, pattern = "strided", op = "read", bytes = "1MiB", request = "64KiB" },
    { name = "writer", processes = 2, pattern = "contiguous", op = "write", bytes = "1MiB", request = "256KiB", iterations = 2,
      compute = "5ms" },
]
END
agrees parallel 2 parallel.toml
# Jobs that compute, and write checkpoints; and a layer of forwarders.
agrees checkpoints 1 checkpoint-pair --quick --seeds 1
agrees forwarders 1 forwarders --quick --seeds 1
