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
python3 - "$MNT/file" "$other/file" <<'END' || fail "locks of bytes"
import errno, fcntl, os, struct, sys, time

one, other = (os.open(path, os.O_RDWR) for path in sys.argv[1:])

def lock(fd, kind, first, count, wait=False):
    # struct flock of 64-bit Linux.
    asked = struct.pack("hhqqi4x", kind, os.SEEK_SET, first, count, 0)
    return fcntl.fcntl(fd, fcntl.F_SETLKW if wait else fcntl.F_SETLK, asked)

def refused(*args):
    try:
        lock(*args)
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EACCES), error
        return True
    return False

lock(one, fcntl.F_WRLCK, 0, 100)
# A child is another owner, on whichever mount.
def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return pid

def joined(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def looks():
    for fd in (one, other):
        assert refused(fd, fcntl.F_RDLCK, 99, 1)
        found = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 50, 200, 0)))
        assert found[0] == fcntl.F_WRLCK and (found[2], found[3]) == (0, 100), found
        lock(fd, fcntl.F_WRLCK, 100, 10)
        lock(fd, fcntl.F_UNLCK, 100, 10)
joined(child(looks))
# The middle is given back; what is left is two.
lock(one, fcntl.F_UNLCK, 40, 20)
def middle():
    lock(other, fcntl.F_WRLCK, 40, 20)
    assert refused(other, fcntl.F_WRLCK, 39, 1) and refused(other, fcntl.F_WRLCK, 60, 1)
joined(child(middle))
# Closing any descriptor of the file gives all back.
waiting = child(lambda: lock(other, fcntl.F_WRLCK, 0, 10, True))
time.sleep(0.3)
assert os.waitpid(waiting, os.WNOHANG) == (0, 0)
os.close(os.open(sys.argv[1], os.O_RDONLY))
joined(waiting)

# A counter that several processes on both mounts read, change and write.
path = sys.argv[1] + ".count"
open(path, "w").write("0".ljust(20))
def count(path):
    fd = os.open(path, os.O_RDWR)
    for _ in range(40):
        lock(fd, fcntl.F_WRLCK, 0, 0, True)
        number = int(os.pread(fd, 20, 0))
        os.pwrite(fd, str(number + 1).ljust(20).encode(), 0)
        lock(fd, fcntl.F_UNLCK, 0, 0)
for counting in [child(lambda path=path: count(path)) for path in [path, sys.argv[2] + ".count"] * 2]:
    joined(counting)
assert int(open(path).read()) == 160, open(path).read()
END

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
