#!/usr/bin/env bash
# Locks of a server's files hold among its mounts: of fcntl and of flock, waited for, interrupted, given back by whoever goes or is killed, and over a
# restart of the server. What is read, changed and written back under a lock on both loses nothing.
# limit: 120
# variants: fifo fifo/page fifo/direct/device
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs flock python3
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
transport=()
[ "$TRANSPORT" = auto ] || transport=(--no-uring)
other=$WORK/other
mkdir "$other"
end() {
    local status=$?
    umount --lazy "$other" 2>/dev/null || true
    clean_up "$status"
}
trap end EXIT
serve_source
for place in "$MNT" "$other"; do
    "$IOGATE" mount --remote "unix:$WORK/socket" "$place" --scheduler fifo --cache "$CACHE" "${transport[@]}" || fail "not mounted"
done
touch "$MNT/file"

echo "== flock"
flock --no-fork --exclusive "$MNT/file" sleep 100 &
holder=$!
held_elsewhere() { ! flock --nonblock --shared "$1/file" true; }
eventually 5 held_elsewhere "$other" || fail "a lock is not seen by the other mount"
held_elsewhere "$MNT" || fail "a lock is not seen by its own mount"
# Who waits has it when the other one goes, even if that is killed.
flock --exclusive "$other/file" touch "$SIDE/had" &
waiter=$!
sleep 0.3
[ ! -e "$SIDE/had" ] || fail "two have a lock"
kill -KILL "$holder"
wait "$waiter" || fail "who waits does not get the lock"
[ -e "$SIDE/had" ]
# A wait is ended by a signal.
flock --no-fork --exclusive "$MNT/file" sleep 100 &
holder=$!
eventually 5 held_elsewhere "$other"
status=0
timeout --signal=TERM 1 flock --exclusive "$other/file" true || status=$?
[ "$status" -eq 124 ] || fail "expected a wait that is ended by a signal, got status $status"
status=0
flock --timeout 1 --conflict-exit-code 9 "$other/file" true || status=$?
[ "$status" -eq 9 ] || fail "expected a wait that is over after a second, got status $status"
kill -KILL "$holder"

echo "== fcntl, by bytes"
python3 "$(dirname "$0")/byte_locks.py" "$MNT/file" "$other/file" || fail "locks of bytes"

echo "== a database that processes on both mounts write"
one_database 30 "$MNT" "$other" "$MNT" "$other"

echo "== over a restart of the server"
flock --no-fork --exclusive "$MNT/file" sleep 100 &
holder=$!
eventually 5 held_elsewhere "$other"
kill -KILL "$server"
wait "$server" 2>/dev/null || true
serve_source
# The lock is kept for who had it, whoever comes first; nobody is told something else meanwhile.
held_elsewhere "$other" || fail "a lock is lost with the server"
held_elsewhere "$MNT" || fail "a lock is lost with the server"
kill -KILL "$holder"
flock --timeout 60 --exclusive "$other/file" true || fail "the lock is not given back"

for place in "$MNT" "$other"; do "$IOGATE" umount "$place"; done
kill -TERM "$server"
wait "$server"
[ ! -e "$SRC/.iogate/locked" ] || fail "a server that nobody holds a lock of still keeps them for somebody"
