#!/usr/bin/env bash
# Exports of a server that clients of NFS mount, too: through a client of others (libnfs), beside a client of iogate's, behind one gate;
# one of them read-only, and the server is killed in the middle of writes.
# limit: 120
# variants: fifo aioli
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs nfs-ls nfs-cp nfs-cat python3
[ "$(id -u)" -eq 0 ] || skip "clients of NFS come from ports that take root"
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
client=$(dirname "$0")/nfs_client.py
SERVER=
end() {
    local status=$?
    is_unmounted || umount --lazy "$MNT" || true
    [ -z "$SERVER" ] || kill -KILL "$SERVER" 2>/dev/null || true
    clean_up "$status"
}
trap end EXIT
mkdir "$WORK/fixed"
head -c 3000000 /dev/urandom >"$WORK/fixed/data"

# configure PORT [LINE...]: lines of the read-write export of NFS
configure() {
    cat >"$WORK/server.toml" <<END
[[listen]]
at = "unix:$WORK/socket"
[[export]]
name = "scratch"
directory = "$SRC"
gate = { scheduler = "$SCHEDULER" }
users = { squash = "none" }
[[export]]
name = "fixed"
directory = "$WORK/fixed"
[nfs]
listen = "127.0.0.1:$1"
[[nfs.export]]
export = "scratch"
path = "/scratch"
$(printf '%s\n' "${@:2}")
[[nfs.export]]
export = "fixed"
read_only = true
END
}
serve() {
    : >"$WORK/server.out"
    "$IOGATE" serve "$WORK/server.toml" >"$WORK/server.out" 2>>"$WORK/server.log" 3>&- &
    SERVER=$!
    ready_or_gone() { grep -q '^ready$' "$WORK/server.out" || is_gone "$SERVER"; }
    eventually 20 ready_or_gone || true
    grep -q '^ready$' "$WORK/server.out" || fail "the server does not start: $(cat "$WORK/server.log")"
    PORT=$(sed -n 's/^nfs at .*://p' "$WORK/server.out")
    URL=nfs://127.0.0.1/scratch
    FIXED=nfs://127.0.0.1$WORK/fixed
    HOW="?version=3&nfsport=$PORT&mountport=$PORT"
}
end_server() {
    local status=0
    kill -TERM "$SERVER"
    eventually 20 is_gone "$SERVER" || fail "the server does not end"
    wait "$SERVER" || status=$?
    SERVER=
    [ "$status" -eq 0 ] || fail "the server ended with status $status"
}
nfs() { timeout 100 python3 "$client" "$1" "$URL" "$HOW" "${@:2}" || fail "nfs_client.py $1"; }

# --- What is wrong is said with its line.
configure 0 'export = "again"'
refused 2 'line 1[0-9]' "$IOGATE" serve --check "$WORK/server.toml"
configure 0 'colour = 1'
refused 2 'unknown field .colour.' "$IOGATE" serve --check "$WORK/server.toml"
configure 0
sed 's/"127.0.0.1:0"/"0.0.0.0:0"/' "$WORK/server.toml" >"$WORK/open.toml"
refused 2 'line 12: listen = "0.0.0.0:0": expected allow' "$IOGATE" serve --check "$WORK/open.toml"
sed 's/^export = "fixed"/export = "nothing"/' "$WORK/server.toml" >"$WORK/open.toml"
refused 2 'line 18: there is no export .nothing.' "$IOGATE" serve --check "$WORK/open.toml"

configure 0 'users = { squash = "none" }'
serve
grep -q "^mount with: mount -t nfs .*port=$PORT.* 127.0.0.1:/scratch " "$WORK/server.out" || fail "it does not say how to mount"

# --- By NFS and by a mount of iogate's: the same files.
"$IOGATE" mount --remote "unix:$WORK/socket" --export scratch "$MNT" || fail "not mounted"
mkdir -p "$SIDE/tree/folder"
for i in $(seq 20); do head -c $((i * i * 997)) /dev/urandom >"$SIDE/tree/folder/$i"; done
nfs in "$SIDE/tree"
diff -r "$SIDE/tree" "$MNT/in" || fail "what came by NFS is not what the mount shows"
head -c 2000000 /dev/urandom >"$MNT/mounted"
sync "$MNT/mounted"
nfs-cat "$URL/mounted$HOW" | cmp - "$SRC/mounted" || fail "what the mount wrote does not come by NFS"
umount "$MNT"
nfs names
nfs permissions '&uid=1000&gid=1000'
nfs crowd 20

# --- The other export is another, and nothing is written there.
nfs-cat "$FIXED/data$HOW" | cmp - "$WORK/fixed/data" || fail "the read-only export is not read"
! timeout 20 nfs-cp "$SIDE/tree/folder/20" "$FIXED/new$HOW" >/dev/null 2>&1 || fail "a read-only export is written"
[ ! -e "$WORK/fixed/new" ] || fail "a read-only export has a new file"

# --- One gate for both ways in, and its status shows what has passed by NFS.
"$IOGATE" status --json "unix:$WORK/socket" >"$SIDE/status.json" || fail "no status"
python3 - "$SIDE/status.json" <<'END' || fail "the status is another one"
import json, sys
status = json.load(open(sys.argv[1]))
gates = {export["name"]: export["gate"].get("summary", export["gate"]) for export in status["exports"]}
assert gates["scratch"]["write"]["bytes"] > 8_000_000, gates["scratch"]["write"]
assert gates["fixed"]["read"]["bytes"] >= 3_000_000 and gates["fixed"]["write"]["bytes"] == 0, gates["fixed"]
assert len(gates["scratch"]["apps"]) >= 2
END

# --- Killed in the middle of writes that nobody has committed: the client goes on, and all is there.
configure "$PORT" 'users = { squash = "none" }'
nfs through "$SIDE/progress" "$SIDE/enough" >"$SIDE/through.out" 2>&1 &
writer=$!
committed() {
    local block
    block=$(cat "$SIDE/progress" 2>/dev/null) || true
    [ "${block:-0}" -ge "$1" ]
}
for round in 32 96; do
    eventually 60 committed "$round" || fail "the writer does not get on: $(cat "$SIDE/through.out")"
    kill -KILL "$SERVER"
    wait "$SERVER" 2>/dev/null || true
    serve
done
eventually 60 committed 144 || fail "the writer does not go on: $(cat "$SIDE/through.out")"
: >"$SIDE/enough"
wait "$writer" || fail "through a kill: $(cat "$SIDE/through.out")"

# --- Root is nobody where nothing else is said.
end_server
configure 0
serve
echo secret >"$SRC/roots"
chmod 600 "$SRC/roots"
! timeout 20 nfs-cat "$URL/roots$HOW" 2>/dev/null | grep secret >/dev/null || fail "root of a client reads what is root's"
end_server
! grep "panicked\|defect" "$WORK/server.log" || fail "the server's log has: $(cat "$WORK/server.log")"
