#!/usr/bin/env bash
# Two servers that forward to each other, as one of them has been started again with another configuration: they say so, what is asked fails at
# once, and it goes on when the ring is open again. One that forwards to itself by another name does not begin to serve.
# limit: 120
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs jq
STORAGE=
FORWARDER=
end() {
    local status=$?
    is_unmounted || umount --lazy "$MNT" || true
    [ -z "$FORWARDER" ] || kill -KILL "$FORWARDER" 2>/dev/null || true
    [ -z "$STORAGE" ] || kill -KILL "$STORAGE" 2>/dev/null || true
    clean_up "$status"
}
trap end EXIT
[ -c /dev/fuse ] || skip "there is no /dev/fuse"

# configured NAME WHAT: the configuration of a server at this socket, with this store.
configured() {
    cat >"$WORK/$1.toml" <<END_OF_FILE
[[listen]]
at = "unix:$WORK/$1.socket"
[[export]]
$2
users = { squash = "none" }
END_OF_FILE
}
# serve NAME: returns when it serves; its process is in SERVER.
serve() {
    "$IOGATE" serve "$WORK/$1.toml" >"$WORK/$1.out" 2>>"$WORK/$1.log" 3>&- &
    SERVER=$!
    eventually 20 grep -q '^ready$' "$WORK/$1.out" || fail "$1 does not start: $(cat "$WORK/$1.log")"
}
of_directory() { configured storage "directory = \"$SRC\""; }
configured forwarder "forward = \"unix:$WORK/storage.socket\""
of_directory
serve storage
STORAGE=$SERVER
serve forwarder
FORWARDER=$SERVER
echo there >"$SRC/file"
"$IOGATE" mount --remote "unix:$WORK/forwarder.socket" "$MNT" || fail "not mounted"
grep -q there "$MNT/file" || fail "it cannot be read"

stop_storage() {
    kill -KILL "$STORAGE"
    eventually 10 is_gone "$STORAGE" || fail "the storage's server does not die"
    STORAGE=
}
stop_storage
configured storage "forward = \"unix:$WORK/forwarder.socket\""
serve storage
STORAGE=$SERVER
# Whoever made the last connection finds the ring: mostly the forwarder, and the other one if that has looked just then.
in_ring() {
    local server
    for server in forwarder storage; do
        "$IOGATE" status "unix:$WORK/$server.socket" --json >"$SIDE/$server.json" || continue
        if jq -e '[.exports[].gate.about[] | select(.[0] == "connection")[1] | test("in a ring: unix:.*(storage|forwarder).socket -> unix:.*(forwarder|storage).socket -> unix:.*")] | any' \
            "$SIDE/$server.json" >/dev/null; then
            return 0
        fi
    done
    return 1
}
eventually 20 in_ring || fail "nobody says that there is a ring: $(cat "$SIDE"/*.json)"
cat "$WORK"/*.log >"$SIDE/logs"
grep -q 'forward to each other in a ring' "$SIDE/logs" || fail "no log says it: $(cat "$SIDE/logs")"
refused any 'Too many levels of symbolic links' timeout 20 stat "$MNT/other"

# --- The ring is open: it goes on.
stop_storage
of_directory
serve storage
STORAGE=$SERVER
is_back() { timeout 5 grep -qs there "$MNT/file"; }
eventually 30 is_back || fail "it does not go on"
"$IOGATE" umount "$MNT"

# --- A server that forwards to itself, by another name of its socket: it would wait for its own answer, and gives up.
stop_storage
mkdir "$WORK/other"
ln -s "$WORK" "$WORK/other/name"
configured storage "forward = \"unix:$WORK/other/name/storage.socket\""
refused 1 'servers that forward to each other, or one to itself' timeout 40 "$IOGATE" serve "$WORK/storage.toml"
