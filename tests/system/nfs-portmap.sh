#!/usr/bin/env bash
# The port mapper: in a network of its own, Debian's rpcbind is told where NFS, MOUNT, NLM and NSM are for as long as a server runs, `iogate nfs` or that of a
# configuration; another server is refused, and one that finds no port mapper says so.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs rpcbind rpcinfo unshare setpriv
[ "$(id -u)" -eq 0 ] || skip "a network and a /run of its own take root"
if [ -z "${IN_NAMESPACES:-}" ]; then
    trap - EXIT
    IN_NAMESPACES=yes exec unshare --net --mount --pid --fork --kill-child --mount-proc bash "$0"
fi

mount -t tmpfs run /run
ip link set lo up
serve=("$IOGATE" nfs "$SRC" --listen 127.0.0.1:2049 --portmap)
registered() { rpcinfo -p 127.0.0.1 | awk '$1 == 100003 || $1 == 100005 || $1 == 100021 || $1 == 100024 { print $1, $2, $3, $4 }' | sort | tr '\n' ';'; }
all='100003 3 tcp 2049;100005 3 tcp 2049;100021 4 tcp 2049;100024 1 udp 2049;'

refused any 'expected a port mapper at /run/rpcbind.sock' "${serve[@]}"

rpcbind -f >"$SIDE/rpcbind" 2>&1 &
RPCBIND=$!
there() { [ -S /run/rpcbind.sock ] && rpcinfo -p 127.0.0.1 >/dev/null 2>&1; }
eventually 10 there || fail "rpcbind does not start: $(cat "$SIDE/rpcbind")"

start() {
    : >"$SIDE/out"
    "$@" >"$SIDE/out" 2>"$SIDE/err" &
    SERVER=$!
    ready_or_gone() { grep -q '^ready$' "$SIDE/out" || is_gone "$SERVER"; }
    eventually 10 ready_or_gone || true
    grep -q '^ready$' "$SIDE/out" || fail "no server: $(cat "$SIDE/err")"
}
end_server() {
    kill -TERM "$SERVER"
    wait "$SERVER" || fail "the server did not end well: $(cat "$SIDE/err")"
    left=$(registered) || fail "the port mapper does not answer"
    [ -z "$left" ] || fail "the port mapper has it still: $left"
}

# `mount` asks so whether the server is there, also from a port that any user may have.
answers_anybody() {
    local program
    for program in 100003 100005; do
        setpriv --reuid 1000 --regid 1000 --clear-groups rpcinfo -t 127.0.0.1 "$program" 3 >"$SIDE/asked" 2>&1 ||
            fail "program $program does not answer: $(cat "$SIDE/asked")"
    done
}

# One that was killed had no time to take anything back: the next one at its address takes over.
start "${serve[@]}"
answers_anybody
kill -KILL "$SERVER"
wait "$SERVER" || true
start "${serve[@]}"
[ "$(registered)" = "$all" ] || fail "the port mapper has: $(registered)"
# Who registers elsewhere would take the clients of the first.
refused any 'the port mapper refuses program 100003 for tcp' "$IOGATE" nfs "$SRC" --listen 127.0.0.1:2050 --state "$SIDE/state" --portmap
[ "$(registered)" = "$all" ] || fail "a server that was refused leaves: $(registered)"
end_server

cat >"$SIDE/server.toml" <<END
[[listen]]
at = "unix:$SIDE/socket"
[[export]]
name = "files"
directory = "$SRC"
[nfs]
portmap = true
[[nfs.export]]
export = "files"
END
start "$IOGATE" serve "$SIDE/server.toml"
[ "$(registered)" = "$all" ] || fail "the port mapper has: $(registered)"
end_server

# It does not answer: a server that begins says so; one that ends has told it all, before it waits.
kill -STOP "$RPCBIND"
refused any 'expected an answer of the port mapper at .*rpcinfo -d' "${serve[@]}"
kill -CONT "$RPCBIND"
start "${serve[@]}"
[ "$(registered)" = "$all" ] || fail "the port mapper has: $(registered)"
kill -STOP "$RPCBIND"
kill -TERM "$SERVER"
wait "$SERVER" || fail "the server did not end well: $(cat "$SIDE/err")"
kill -CONT "$RPCBIND"
is_free() { left=$(registered) && [ -z "$left" ]; }
eventually 10 is_free || fail "the port mapper has it still: $(registered)"
