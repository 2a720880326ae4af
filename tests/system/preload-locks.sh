#!/usr/bin/env bash
# Locks of bytes under the preload library are the server's: they hold between programs, each of which has a session of its own, and beside a mount of the
# same server; they end with a descriptor, with a program, and with one that is killed; they are waited for, and survive the server. Databases and counters that
# both write lose nothing.
# limit: 120
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs python3
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
library=${IOGATE%/*}/libiogate_preload.so
[ -e "$library" ] || fail "there is no $library"
export IOGATE_FORWARDERS=unix:$WORK/socket IOGATE_PREFIX=/iogate-of-tests
here=$IOGATE_PREFIX
with() { LD_PRELOAD=$library "$@"; }

# lock.py hold|try|wait FILE: has the first byte locked until it is killed, and reads it now and then; says whether it can be locked; waits for that, for a
# second with a signal that does nothing.
cat >"$SIDE/lock.py" <<'END'
import fcntl, os, signal, sys, time

what, path = sys.argv[1:]
fd = os.open(path, os.O_RDWR)
if what == "try":
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except BlockingIOError:
        sys.exit(9)
elif what == "hold":
    fcntl.lockf(fd, fcntl.LOCK_EX, 1)
    print("held", flush=True)
    while True:
        os.pread(fd, 1, 0)
        time.sleep(0.2)
elif what == "wait":
    class Signalled(Exception):
        pass

    def handle(*_):
        raise Signalled

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX, 1)
    except Signalled:
        sys.exit(9)
END
holds() { grep -q held "$SIDE/held"; }
# holder COMMAND...: begins to hold by a program; `holder` is its process.
holder() {
    : >"$SIDE/held"
    "$@" >"$SIDE/held" &
    holder=$!
    eventually 5 holds || fail "nobody gets the lock"
}
held_preload() { local status=0; with python3 "$SIDE/lock.py" try "$here/file" || status=$?; [ "$status" -eq 9 ]; }
held_mount() { local status=0; python3 "$SIDE/lock.py" try "$MNT/file" || status=$?; [ "$status" -eq 9 ]; }

GRACE=60s serve_source
"$IOGATE" mount --remote "unix:$WORK/socket" "$MNT" --scheduler fifo --cache "$CACHE" || fail "not mounted"
touch "$MNT/file"

echo "== between programs, and beside the mount"
holder env LD_PRELOAD="$library" python3 "$SIDE/lock.py" hold "$here/file"
held_preload || fail "two programs have a lock"
held_mount || fail "a program and one on the mount have a lock"
status=0
with python3 "$SIDE/lock.py" wait "$here/file" || status=$?
[ "$status" -eq 9 ] || fail "expected a wait that is ended by a signal, got status $status"
status=0
LD_PRELOAD=$library timeout 1 python3 "$SIDE/lock.py" hold "$here/file" || status=$?
[ "$status" -eq 124 ] || fail "expected a program that is ended while it waits, got status $status"

echo "== one that is killed"
LD_PRELOAD=$library python3 "$SIDE/lock.py" hold "$here/file" >"$SIDE/held" &
next=$!
: >"$SIDE/held"
began=$(date +%s)
kill -KILL "$holder"
eventually 5 holds || fail "a lock stays with one who was killed"
took=$(($(date +%s) - began))
echo "free after $took s"
[ "$took" -lt 30 ] || fail "a lock stays with one who was killed for $took s"
# By whatever kills it; and to one on the mount.
kill -TERM "$next"
wait "$next" 2>/dev/null || true
python3 "$SIDE/lock.py" hold "$MNT/file" >"$SIDE/held" &
holder=$!
eventually 5 holds || fail "a lock stays with one who was ended"
held_preload || fail "one on the mount and a program have a lock"
kill -KILL "$holder"
wait "$holder" 2>/dev/null || true

echo "== by bytes"
for pair in "$here $here" "$here $MNT" "$MNT $here"; do
    read -r one other <<<"$pair"
    with python3 "$(dirname "$0")/byte_locks.py" "$one/file" "$other/file" || fail "locks of bytes: $pair"
done

echo "== a database that programs write, with the library and on the mount"
LD_PRELOAD=$library one_database 15 "$here" "$MNT" "$here" "$MNT"

echo "== over a restart of the server"
kill -TERM "$server"
wait "$server" || true
serve_source
holder env LD_PRELOAD="$library" python3 "$SIDE/lock.py" hold "$here/file"
kill -KILL "$server"
wait "$server" 2>/dev/null || true
serve_source
held_mount || fail "a lock is lost with the server"
held_preload || fail "a lock is lost with the server"
kill -0 "$holder" || fail "who has a lock is told that it is lost"
kill -KILL "$holder"
