#!/usr/bin/env bash
# Striped files of several servers by NFS: a mount of theirs is served. Trees in and out, and a writer that goes on while the server of NFS and
# a data server are killed between its writes and its commits.
# limit: 150
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs nfs-ls nfs-cat python3
[ "$(id -u)" -eq 0 ] || skip "clients of NFS come from ports that take root"
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
client=$(dirname "$0")/nfs_client.py
CLUSTER=$WORK/cluster
SERVER=
cluster() { "$IOGATE" cluster "$@" --dir "$CLUSTER"; }
end() {
    local status=$?
    [ -z "$SERVER" ] || kill -KILL "$SERVER" 2>/dev/null || true
    umount --lazy "$MNT" 2>/dev/null || true
    [ ! -e "$CLUSTER/cluster.toml" ] || cluster down striped --purge || true
    clean_up "$status"
}
trap end EXIT

printf '%s\n' 'name = "striped"' 'servers = { count = 2 }' 'forwarders = { count = 1 }' >"$WORK/cluster.toml"
cluster up "$WORK/cluster.toml" >"$SIDE/up"
"$IOGATE" mount --remote "$(cluster status striped --entrances)" "$MNT" || fail "not mounted"

serve() {
    : >"$WORK/server.out"
    "$IOGATE" nfs "$MNT" --listen "127.0.0.1:$1" --state "$WORK/state" --no-root-squash >"$WORK/server.out" 2>>"$WORK/server.log" 3>&- &
    SERVER=$!
    ready_or_gone() { grep -q '^ready$' "$WORK/server.out" || is_gone "$SERVER"; }
    eventually 20 ready_or_gone || true
    grep -q '^ready$' "$WORK/server.out" || fail "the server does not start: $(cat "$WORK/server.log")"
    PORT=$(sed -n 's/^listening at .*://p' "$WORK/server.out")
    URL="nfs://127.0.0.1$MNT"
    HOW="?version=3&nfsport=$PORT&mountport=$PORT"
}
nfs() { timeout 140 python3 "$client" "$1" "$URL" "$HOW" "${@:2}" || fail "nfs_client.py $1"; }
serve 0

# --- Trees, in and out; the bytes lie in stripes on both servers.
mkdir -p "$SIDE/tree/folder"
for i in $(seq 12); do head -c $((i * i * 9700)) /dev/urandom >"$SIDE/tree/folder/$i"; done
nfs in "$SIDE/tree"
nfs out "$SIDE/back"
diff -r "$SIDE/tree" "$SIDE/back" || fail "what came back is not what went in"
diff -r "$SIDE/tree" "$MNT/in" || fail "what is there is not what went in"
nfs names

# --- Whoever is killed between a write and its commit, the client goes on with the handles that it has, and all is there.
nfs through "$SIDE/progress" "$SIDE/enough" >"$SIDE/through.out" 2>&1 &
writer=$!
committed() {
    local block
    block=$(cat "$SIDE/progress" 2>/dev/null) || true
    [ "${block:-0}" -ge "$1" ]
}
for round in 16 64; do
    eventually 60 committed "$round" || fail "the writer does not get on: $(cat "$SIDE/through.out")"
    kill -KILL "$SERVER"
    wait "$SERVER" 2>/dev/null || true
    serve "$PORT"
    eventually 60 committed "$((round + 32))" || fail "the writer does not go on: $(cat "$SIDE/through.out")"
    data_server=$(cut -d ' ' -f 1 "$CLUSTER/server-1.pid")
    kill -KILL "$data_server"
    eventually 10 is_gone "$data_server" || fail "the data server does not die"
    cluster up "$WORK/cluster.toml" >>"$SIDE/up"
done
eventually 60 committed 128 || fail "the writer does not go on: $(cat "$SIDE/through.out")"
: >"$SIDE/enough"
wait "$writer" || fail "through kills: $(cat "$SIDE/through.out")"

kill -TERM "$SERVER"
wait "$SERVER" || fail "the server did not end well"
SERVER=
! grep "panicked\|defect\|are lost" "$WORK/server.log" || fail "the server's log has: $(cat "$WORK/server.log")"
