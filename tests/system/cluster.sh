#!/usr/bin/env bash
# A two-layer cluster, a mount over its forwarders, real MPI programs on it; nodes that are killed and started again.
# limit: 180
# variants: fifo
# alone: it starts a dozen processes
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs jq mpicc.mpich mpicc.openmpi
REPOSITORY=$(cd "$(dirname "$0")/../.." && pwd)
CLUSTER=$WORK/cluster
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cluster() {
    local command=$1
    shift
    "$IOGATE" cluster "$command" "$@" --dir "$CLUSTER"
}
end_cluster() {
    local status=$?
    is_unmounted || umount --lazy "$MNT" || true
    [ ! -e "$CLUSTER/cluster.toml" ] || cluster down "$CLUSTER/cluster.toml" --purge || true
    clean_up "$status"
}
trap end_cluster EXIT
pid_of() { cut -d ' ' -f 1 "$CLUSTER/$1.pid"; }

[ -c /dev/fuse ] || skip "there is no /dev/fuse"
cluster up "$REPOSITORY/examples/two-layer.toml"
cluster up "$REPOSITORY/examples/two-layer.toml" # those that are up stay
cluster status two-layer
[ "$(cluster status two-layer --json | jq 'map(select(.status != null)) | length')" -eq 6 ] || fail "not all nodes answer"
# Nodes that hang are asked all at once: 5 s, not 30.
nodes=$(cluster status two-layer --json | jq '.[].pid')
# shellcheck disable=SC2086 # numbers
kill -STOP $nodes
began=$(date +%s)
cluster status two-layer >"$SIDE/hung" || fail "no status of nodes that hang"
took=$(($(date +%s) - began))
# shellcheck disable=SC2086
kill -CONT $nodes
[ "$took" -lt 20 ] || fail "the status of nodes that hang took $took s"
[ "$(grep -c 'does not answer' "$SIDE/hung")" -eq 6 ] || fail "nothing says that they hang: $(cat "$SIDE/hung")"
"$IOGATE" mount --remote "$(cluster status two-layer --entrances)" "$MNT"
is_mounted || fail "not mounted"

# --- What everybody expects of a file system.
yes "a line of text" | head -c 3000000 >"$SIDE/text" || true
cp "$SIDE/text" "$MNT/text"
cmp "$SIDE/text" "$MNT/text"
[ "$(stat -c %s "$MNT/text")" -eq 3000000 ] || fail "the size is wrong"
mkdir -p "$MNT/a/b"
mv "$MNT/text" "$MNT/a/b/moved"
cmp "$SIDE/text" "$MNT/a/b/moved"
rm -r "$MNT/a"
[ -z "$(ls "$MNT")" ] || fail "something is left: $(ls "$MNT")"

# --- MPI programs. One job is one application, at every gate.
for mpi in mpich openmpi; do
    mpicc.$mpi -O1 -Wall -o "$SIDE/mpi-io.$mpi" "$(dirname "$0")/mpi-io.c"
    options=()
    [ $mpi = mpich ] || options=(--oversubscribe)
    timeout 60 mpirun.$mpi "${options[@]}" -n 4 "$SIDE/mpi-io.$mpi" "$MNT/shared-$mpi" 8 || fail "the $mpi program"
done
cluster status two-layer

# --- Nodes die under load, and come back. Programs only wait.
for i in $(seq 40); do
    head -c 200000 /dev/urandom >"$SIDE/piece-$i"
done
writer() {
    local i
    for i in $(seq 40); do
        dd if="$SIDE/piece-$i" of="$MNT/piece-$1-$i" bs=64K conv=fsync status=none || return 1
        echo "$i" >>"$SIDE/done-$1"
    done
}
writers=()
for w in 1 2 3; do
    writer $w &
    writers+=($!)
done
written() { [ "$(cat "$SIDE"/done-* 2>/dev/null | wc -l)" -ge "$1" ]; }
# Whether forwarders say that they do not reach the third data server.
misses() {
    cluster status two-layer --json |
        jq -e '[.[].status.exports[]?.gate.about[]? | select(.[0] == "connection")[1] | test("target 2: no connection to .*server-2")] | any' >/dev/null
}
! misses || fail "a data server is said to be missed that is there"
is_blamed() {
    local entrance
    for entrance in $(cluster status two-layer --entrances | tr , ' '); do
        "$IOGATE" why "$entrance" --for 1s >"$SIDE/why" || return 1
        ! grep -E 'does not answer now: .*no connection to .*server-2' "$SIDE/why" >/dev/null || return 0
    done
    return 1
}
at=10
for node in forwarder-0 server-2 server-0; do
    eventually 30 written $at || fail "the writers do not get on"
    kill -KILL "$(pid_of $node)"
    eventually 5 is_gone "$(pid_of $node)" || fail "$node does not die"
    if [ $node = server-2 ]; then
        eventually 10 misses || fail "no forwarder says that server-2 is missed"
        # Whoever waits for it is told so, and not only that it is slow itself.
        blamed=no
        for _ in $(seq 8); do
            [ $blamed = yes ] || ! is_blamed || blamed=yes
        done
        [ $blamed = yes ] || fail "the server that is gone is not named: $(cat "$SIDE/why")"
    fi
    cluster up "$REPOSITORY/examples/two-layer.toml" >"$SIDE/up"
    at=$((at + 25))
done
for pid in "${writers[@]}"; do
    wait "$pid" || fail "a writer got an error, though all nodes came back"
done
for w in 1 2 3; do
    for i in $(seq 40); do
        cmp "$SIDE/piece-$i" "$MNT/piece-$w-$i" || fail "piece $i of writer $w is not whole"
    done
done
"$IOGATE" umount "$MNT"
cluster down two-layer --purge
[ ! -e "$CLUSTER" ] || fail "the folder is still there"

# --- Gates with a policy, which nodes have a copy of, and changes of it.
printf 'by = "user"\n' >"$SIDE/shared.toml"
cat >"$SIDE/entitled.toml" <<'END'
name = "entitled"
servers = { count = 2, gate = { policy = "shared.toml" } }
forwarders = { count = 1 }
END
cluster up "$SIDE/entitled.toml"
# The scheduler of each node's gate, and by what its policy divides.
gates() {
    cluster status entitled --json |
        jq -r '.[].status.exports[0] | [.scheduler, (.gate.about[]? | select(.[0] == "policy")[1] | split(":")[0])] | join(" ")' | paste -sd ,
}
[ "$(gates)" = 'fifo by user,fifo by user,fifo' ] || fail "not as the file says: $(gates)"
cluster set entitled --servers fair=job
cluster set entitled --forwarders scheduler=hbrr
[ "$(gates)" = 'fifo by job,fifo by job,hbrr' ] || fail "not as it was set: $(gates)"
printf 'by = "usr"\n' >"$SIDE/typed.toml"
refused 2 'usr' "$IOGATE" cluster set entitled "policy=$SIDE/typed.toml" --dir "$CLUSTER"
refused 2 'nothing was changed' "$IOGATE" cluster set entitled scheduler=nothing --dir "$CLUSTER"
kill -KILL "$(pid_of server-1)"
eventually 5 is_gone "$(pid_of server-1)" || fail "server-1 does not die"
refused 1 'server-1 is down' "$IOGATE" cluster set entitled fair=user --dir "$CLUSTER"
printf 'by = "job"\n' >"$SIDE/shared.toml"
refused 2 'with another configuration' "$IOGATE" cluster up "$SIDE/entitled.toml" --dir "$CLUSTER"
rm "$SIDE/shared.toml"
cluster status entitled
refused 2 'has the cluster entitled' "$IOGATE" cluster down two-layer --purge --dir "$CLUSTER"
cluster down entitled --purge
refused 2 'there is no cluster' "$IOGATE" cluster status two-layer --dir "$CLUSTER"

# --- A folder that has something else in it is no cluster's: to purge the cluster would remove it.
mkdir -m 700 "$SIDE/mine"
: >"$SIDE/mine/keep"
refused 1 'has something else in it' "$IOGATE" cluster up "$REPOSITORY/examples/two-layer.toml" --dir "$SIDE/mine"
