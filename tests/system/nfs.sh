#!/usr/bin/env bash
# A directory by NFS, through a client of others (libnfs): trees in and out, names, permissions, a hundred clients at once, and a
# server that is killed in the middle of writes.
# limit: 120
# variants: fifo aioli
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs jq nfs-ls nfs-cp nfs-cat python3
[ "$(id -u)" -eq 0 ] || skip "clients of NFS come from ports that take root"
client=$(dirname "$0")/nfs_client.py

# serve ADDRESS:PORT [OPTION...]
serve() {
    local at=$1
    shift
    # An earlier one has said that it is ready, too.
    : >"$WORK/server.out"
    "$IOGATE" nfs "$SRC" --listen "$at" --scheduler "$SCHEDULER" --control "unix:$WORK/control" --accounts on "$@" \
        >"$WORK/server.out" 2>>"$WORK/server.log" &
    SERVER=$!
    ready_or_gone() { grep -q '^ready$' "$WORK/server.out" || is_gone "$SERVER"; }
    eventually 10 ready_or_gone || true
    grep -q '^ready$' "$WORK/server.out" || fail "the server does not start: $(cat "$WORK/server.log")"
    PORT=$(sed -n 's/^listening at .*://p' "$WORK/server.out")
    URL="nfs://127.0.0.1$SRC"
    HOW="?version=3&nfsport=$PORT&mountport=$PORT"
}
end_server() {
    local status=0
    kill -TERM "$SERVER"
    eventually 10 is_gone "$SERVER" || fail "the server does not end"
    wait "$SERVER" || status=$?
    [ "$status" -eq 0 ] || fail "the server ended with status $status"
}
nfs() { timeout 100 python3 "$client" "$1" "$URL" "$HOW" "${@:2}" || fail "nfs_client.py $1"; }

# --- What lets anybody in is refused.
refused 2 'expected --allow' "$IOGATE" nfs "$SRC" --listen 0.0.0.0:0
refused 2 'expected unix:PATH' "$IOGATE" nfs "$SRC" --control 127.0.0.1:1
refused any 'must be a directory' "$IOGATE" nfs "$WORK/nothing" --listen 127.0.0.1:0

echo "127.0.0.1/1000" >"$SIDE/applications"
IOGATE_APP_FILE=$SIDE/applications refused any 'expected NAME_OR_GLOB ID' "$IOGATE" nfs "$SRC" --listen 127.0.0.1:0

# One user has a fixed application.
echo "127.0.0.?/1000 77" >"$SIDE/applications"
IOGATE_APP_FILE=$SIDE/applications serve 127.0.0.1:0 --no-root-squash
grep -q "^mount with: mount -t nfs -o vers=3,.*port=$PORT.* 127.0.0.1:$SRC " "$WORK/server.out" || fail "it does not say how to mount"

# --- Trees, in and out.
mkdir -p "$SIDE/tree/folder/deeper" "$SIDE/tree/empty"
for i in $(seq 60); do head -c $((i * i * 97)) /dev/urandom >"$SIDE/tree/folder/$i"; done
head -c 5000000 /dev/urandom >"$SIDE/tree/large"
: >"$SIDE/tree/nothing"
ln -s folder/1 "$SIDE/tree/link"
chmod 600 "$SIDE/tree/folder/1"
chmod 444 "$SIDE/tree/folder/2"
chmod 755 "$SIDE/tree/folder/3"
nfs in "$SIDE/tree"
nfs out "$SIDE/back"
diff -r --no-dereference "$SIDE/tree" "$SIDE/back" || fail "what came back is not what went in"
diff -r --no-dereference "$SIDE/tree" "$SRC/in" || fail "what is there is not what went in"
modes() { (cd "$1" && find . -type f -printf '%m %s %p\n' | sort); }
[ "$(modes "$SIDE/tree")" = "$(modes "$SIDE/back")" ] || fail "permissions were lost"

# --- Programs of libnfs.
nfs-cp "$SIDE/tree/large" "$URL/copied$HOW" >/dev/null || fail "nfs-cp"
nfs-cat "$URL/in/large$HOW" | cmp - "$SIDE/tree/large" || fail "nfs-cat"
cmp "$SIDE/tree/large" "$SRC/copied" || fail "nfs-cp wrote something else"
nfs-ls "$URL$HOW" | grep -q ' copied$' || fail "nfs-ls does not list it"
! nfs-ls "$URL$HOW" | grep -F .iogate || fail "the server's own folder is seen"

nfs names
nfs permissions '&uid=1000&gid=1000'
nfs crowd 100

# --- The gate says what has passed it, by application.
"$IOGATE" status --json "unix:$WORK/control" >"$SIDE/status.json" || fail "no status"
python3 - "$SIDE/status.json" <<'END' || fail "the status is another one"
import json, sys
status = json.load(open(sys.argv[1]))
[export] = status["exports"]
gate = export["gate"]
gate = gate.get("summary", gate)
assert gate["write"]["bytes"] > 40_000_000 and gate["read"]["bytes"] > 40_000_000, gate["write"]["bytes"]
assert gate["read"]["failed"] == gate["write"]["failed"] == 0
assert len(gate["apps"]) >= 2, "two users of one client"
assert any(app["id"] == 77 for app in gate["apps"]), gate["apps"]
END
"$IOGATE" why --json "unix:$WORK/control" >"$SIDE/why.json" || fail "it does not say who slows whom down"
jq -e '.[0].apps | any(.app == "77" and .busy_s > 0)' "$SIDE/why.json" >/dev/null || fail "the application that a file names is not in the accounts: $(cat "$SIDE/why.json")"
"$IOGATE" set "unix:$WORK/control" fair=user || fail "no policy can be set"
nfs names

# --- Killed in the middle of writes that nobody has committed: the client goes on, and all is there.
nfs through "$SIDE/progress" "$SIDE/enough" >"$SIDE/through.out" 2>&1 &
writer=$!
committed() {
    local block
    block=$(cat "$SIDE/progress" 2>/dev/null) || true
    [ "${block:-0}" -ge "$1" ]
}
for round in 32 96 160; do
    eventually 30 committed "$round" || fail "the writer does not get on: $(cat "$SIDE/through.out")"
    kill -KILL "$SERVER"
    wait "$SERVER" 2>/dev/null || true
    serve "127.0.0.1:$PORT" --no-root-squash
done
eventually 30 committed 200 || fail "the writer does not go on: $(cat "$SIDE/through.out")"
: >"$SIDE/enough"
wait "$writer" || fail "through a kill: $(cat "$SIDE/through.out")"

# --- Killed, and asked again what it has answered: the same, and nothing is carried out twice.
nfs again "$SIDE/answers"
kill -KILL "$SERVER"
wait "$SERVER" 2>/dev/null || true
serve "127.0.0.1:$PORT" --no-root-squash
nfs again "$SIDE/answers"

# --- Root is nobody, unless it is said otherwise; and nothing is written where nothing may be.
end_server
serve 127.0.0.1:0
[ "$(stat -c %a "$WORK/control")" = 600 ] || fail "others than its owner reach the socket of --control: $(stat -c %A "$WORK/control")"
echo secret >"$SRC/roots"
chmod 600 "$SRC/roots"
! timeout 20 nfs-cat "$URL/roots$HOW" 2>/dev/null | grep -q secret || fail "root of a client reads what is root's"
end_server
serve 127.0.0.1:0 --read-only --no-root-squash
nfs-cat "$URL/in/large$HOW" | cmp - "$SIDE/tree/large" || fail "a read-only export is not read"
! timeout 20 nfs-cp "$SIDE/tree/large" "$URL/new$HOW" >/dev/null 2>&1 || fail "a read-only export is written"
[ ! -e "$SRC/new" ] || fail "a read-only export has a new file"
end_server
! grep -q "panicked\|defect" "$WORK/server.log" || fail "the server's log has: $(cat "$WORK/server.log")"
