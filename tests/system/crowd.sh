#!/usr/bin/env bash
# Clients are too many, or descriptors too few: who is refused is told why in a line, and who is there goes on and loses nothing.
# limit: 90
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs python3
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
CROWD=10000
ulimit -n $((CROWD + 1000)) 2>/dev/null || skip "$CROWD connections take more descriptors than there may be"

AT=unix:$WORK/socket
mkdir "$WORK/data"
cat >"$WORK/server.toml" <<TOML
[[listen]]
at = "$AT"
[[export]]
name = "data"
directory = "$WORK/data"
users = { squash = "none" }
TOML

# Begins so many sessions; says what those were told that were refused, each kind once, then `there`, and stays until its input ends.
cat >"$SIDE/connect.py" <<'PY'
import os, socket, struct, sys

path, count = sys.argv[1], int(sys.argv[2])
fields = struct.pack("<8sHB16xIIQ16sIHH", b"iogate\r\n", 2, 1, 0, 0, 0, os.urandom(16), 0, 0, 0)
hello = struct.pack("<IHHQ48x", 0, len(fields), 1, 0) + fields
clients, told = [], set()
for _ in range(count):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    clients.append(client)
    try:
        client.sendall(hello)
    except BrokenPipeError:
        pass
    answer = client.recv(4096)
    # A refusal is a text, behind the header and its length.
    if int.from_bytes(answer[6:8], "little"):
        told.add(answer[18:].decode())
print("\n".join(sorted(told)))
print("there", flush=True)
sys.stdin.read()
PY

# serve DESCRIPTORS
serve() {
    (ulimit -n "$1" && exec "$IOGATE" serve "$WORK/server.toml") >"$WORK/server.out" 2>>"$WORK/server.log" 3>&- &
    SERVER=$!
    eventually 10 grep -q '^ready$' "$WORK/server.out" || fail "the server does not start with $1 descriptors"
    "$IOGATE" mount --remote "$AT" "$MNT" || fail "not mounted"
    echo one >"$MNT/file"
}

# crowd COUNT: as many clients more are there. They leave when descriptor 4 is closed.
crowd() {
    rm -f "$SIDE/told"
    mkfifo "$SIDE/leave"
    python3 "$SIDE/connect.py" "$WORK/socket" "$1" <"$SIDE/leave" >"$SIDE/told" &
    CLIENTS=$!
    exec 4>"$SIDE/leave"
    eventually 60 grep -qx there "$SIDE/told" || fail "$1 clients cannot even connect"
    cat "$SIDE/told"
}

# Who was there before goes on, and when the crowd has left there is room.
goes_on() {
    echo two >>"$MNT/file"
    exec 4>&-
    wait "$CLIENTS" || fail "the clients ended with status $?"
    rm "$SIDE/leave"
    has_room() { "$IOGATE" status "$AT" >"$SIDE/status" 2>&1; }
    eventually 20 has_room || fail "there is no room when the others have gone: $(cat "$SIDE/status")"
    [ "$(cat "$MNT/file")" = "$(printf 'one\ntwo')" ] || fail "the file is not what was written"
    "$IOGATE" umount "$MNT" || fail "iogate umount failed"
    kill -TERM "$SERVER"
    wait "$SERVER" || fail "the server ended with status $?"
    ! grep -q "panicked at" "$WORK/server.log" || fail "it panicked"
}

echo "== 64 descriptors"
serve 64
crowd 200
refused any 'the server has 32 connections, which is the limit: close some' "$IOGATE" status "$AT"
[ "$(wc -l <"$SIDE/refused")" -eq 1 ] || fail "it says more than one line"
goes_on

echo "== $CROWD connections of one host"
serve $((CROWD + 1000))
crowd "$CROWD"
grep -q '^this client has 4096 connections, which is the limit: close some' "$SIDE/told" || fail "nobody is told that they are too many"
goes_on
