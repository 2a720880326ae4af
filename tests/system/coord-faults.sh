#!/usr/bin/env bash
# Programs take turns, one after another, while the coordinator and they themselves are killed and stopped.
# limit: 60
# variants: fifo
# alone: what stands still must not be what is merely slow
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

export IOGATE_COORD=unix:$WORK/socket IOGATE_STRICT=1 IOGATE_PATIENCE=20s
unset IOGATE_POLICY IOGATE_JOB SLURM_JOB_ID
COORD_PID=
start() {
    "$IOGATE" coord serve --listen "$IOGATE_COORD" --state "$WORK/state" --set lease=3s >"$SIDE/said" 2>>"$WORK/coord.log" &
    COORD_PID=$!
    echo "$COORD_PID" >"$WORK/coord.pid"
    eventually 10 grep -qx ready "$SIDE/said" || fail "the coordinator does not start"
}
end() {
    local status=$?
    touch "$SIDE/over"
    kill -CONT "$COORD_PID" 2>/dev/null || true
    kill -KILL "$COORD_PID" 2>/dev/null || true
    clean_up "$status"
}
trap end EXIT
start

# Each turn is much shorter than a lease, so that a killed client's command is over before another's begins.
cat >"$SIDE/work" <<'END'
begin=$(date +%s%N)
sleep 0.03
echo "$begin $(date +%s%N) $1" >>turns
END
worker() {
    while [ ! -e "$SIDE/over" ]; do
        "$IOGATE" turn scratch -- sh "$SIDE/work" "$1" 2>>"$WORK/workers.log" || true
    done
}
workers=()
for n in 1 2 3 4 5; do
    worker "$n" &
    workers+=($!)
done
turns() { wc -l <"$SIDE/turns" 2>/dev/null || echo 0; }
grown() { [ "$(turns)" -ge "$1" ]; }
goes_on() { eventually 20 grown $(($(turns) + 10)) || fail "no turns any more after $1"; }

goes_on "the start"
for round in 1 2; do
    kill -KILL "$COORD_PID"
    # It keeps its state to itself until it has ended, which takes a while on a busy machine.
    wait "$COORD_PID" || true
    start
    goes_on "kill -9 of the coordinator ($round)"
    kill -STOP "$COORD_PID"
    sleep 1
    kill -CONT "$COORD_PID"
    goes_on "a pause ($round)"
    for victim in $(pgrep -P "$(echo "${workers[@]}" | tr ' ' ,)" -f "turn scratch" | head -n 2); do
        kill -KILL "$victim" 2>/dev/null || true
    done
    goes_on "kill -9 of clients ($round)"
done
kill -TERM "$COORD_PID"
wait "$COORD_PID" || fail "SIGTERM: the coordinator ended with status $?"
start
goes_on "SIGTERM"
touch "$SIDE/over"
wait "${workers[@]}"

sort -n "$SIDE/turns" | awk '
    $1 < last { print "two at once: client " $3 " from " $1 ", and " who " until " last; wrong = 1 }
    $2 > last { last = $2; who = $3 }
    END { exit wrong }
' || fail "two had a turn at once"
[ "$(cut -d' ' -f3 "$SIDE/turns" | sort -u | wc -l)" -eq 5 ] || fail "not everybody had a turn"
"$IOGATE" coord status | tee "$SIDE/status"
grep -q "0 wait" "$SIDE/status" || fail "somebody is left in line"
