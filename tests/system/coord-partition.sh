#!/usr/bin/env bash
# Jobs on nodes of their own, as network namespaces, take turns over TCP; links go down for longer than a lease. Who is cut off loses its
# turn and knows it, the others go on, and nobody has a turn beside another. In the end nothing is left of it.
# limit: 60
# variants: fifo
# alone: leases and time limits run while links are down
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" -eq 0 ] || skip "network namespaces take root"
NS=ic$$
ip netns add "$NS" 2>/dev/null || skip "network namespaces cannot be made here"
COORD_PID=
end() {
    local status=$? n
    touch "$SIDE/over"
    [ -z "$COORD_PID" ] || kill -KILL "$COORD_PID" 2>/dev/null || true
    for n in 1 2 3; do
        ip netns pids "$NS-$n" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
        ip netns del "$NS-$n" 2>/dev/null || true
    done
    ip netns del "$NS" 2>/dev/null || true
    clean_up "$status"
}
trap end EXIT

# The coordinator's node, with a link to each of the others.
ip -n "$NS" link set lo up
for n in 1 2 3; do
    ip netns add "$NS-$n"
    ip -n "$NS" link add "n$n" type veth peer name eth0 netns "$NS-$n"
    ip -n "$NS" address add "10.78.$n.1/24" dev "n$n"
    ip -n "$NS" link set "n$n" up
    ip -n "$NS-$n" address add "10.78.$n.2/24" dev eth0
    ip -n "$NS-$n" link set eth0 up
done
ip netns exec "$NS" "$IOGATE" coord serve --listen 0.0.0.0:7100 --auth none --allow-unauthenticated-network \
    --state "$WORK/state" --set lease=2s >"$SIDE/said" 2>"$WORK/coord.log" &
COORD_PID=$!
echo "$COORD_PID" >"$WORK/coord.pid"
eventually 10 grep -qx ready "$SIDE/said" || fail "the coordinator does not start: $(cat "$WORK/coord.log")"

# on NODE COMMAND...: there, as a client of the coordinator.
on() {
    local n=$1
    shift
    IOGATE_COORD=10.78.$n.1:7100 IOGATE_COORD_AUTH=none IOGATE_STRICT=1 IOGATE_PATIENCE=20s \
        ip netns exec "$NS-$n" "$@"
}
cat >"$SIDE/work" <<'END'
begin=$(date +%s%N)
sleep 0.03
echo "$begin $(date +%s%N) $1" >>turns
END
worker() {
    while [ ! -e "$SIDE/over" ]; do
        on "$1" "$IOGATE" turn scratch -- sh "$SIDE/work" "$1" 2>>"$WORK/workers.log" || true
    done
}
workers=()
for n in 1 2 3; do
    worker "$n" &
    workers+=($!)
done
turns_of() { grep -c " $1\$" "$SIDE/turns" 2>/dev/null || true; }
grown() { [ "$(turns_of "$1")" -ge "$2" ]; }
goes_on() { eventually 25 grown "$1" $(($(turns_of "$1") + 5)) || fail "no turns of node $1 any more after $2"; }
for n in 1 2 3; do
    goes_on "$n" "the start"
done

# --- A link is down for longer than a lease: the others go on at once, and so does the node when the link is back.
ip -n "$NS-1" link set eth0 down
goes_on 2 "node 1 was cut off"
goes_on 3 "node 1 was cut off"
sleep 2
ip -n "$NS-1" link set eth0 up
goes_on 1 "its link came back"

# --- Who is cut off while it holds a turn learns that it has lost it; another one gets it.
on 2 "$IOGATE" turn other --strict -- sh -c "touch '$SIDE/holds'; sleep 5" 2>"$SIDE/lost" &
holder=$!
eventually 10 [ -e "$SIDE/holds" ] || fail "the turn does not begin"
ip -n "$NS-2" link set eth0 down
on 3 "$IOGATE" turn other --timeout 15s -- touch "$SIDE/next" || fail "the turn of who is cut off is not given on"
[ -e "$SIDE/next" ] || fail "the next one has not run"
ip -n "$NS-2" link set eth0 up
status=0
wait "$holder" || status=$?
[ "$status" -ne 0 ] || fail "who lost its turn does not say so: $(cat "$SIDE/lost")"
goes_on 2 "its link came back"

touch "$SIDE/over"
wait "${workers[@]}"
sort -n "$SIDE/turns" | awk '
    $1 < last { print "two at once: node " $3 " from " $1 ", and " who " until " last; wrong = 1 }
    $2 > last { last = $2; who = $3 }
    END { exit wrong }
' || fail "two had a turn at once"
