#!/usr/bin/env bash
# Locks at mounts of two forwarders over two data servers hold between both: of fcntl and of flock, waited for, given back by whoever goes or is killed. What is
# read, changed and written back under a lock on both loses nothing, and a database that both write is whole, while a data server, a forwarder and a mount
# are killed. Who has lost a lock with its forwarder is told so.
# limit: 150
# variants: fifo aioli/page
# alone: locks are lost where a machine is so busy that who has them does not come back in time
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

# Nobody waits for the minute that sessions stay without a connection otherwise.
declare -A process
for server in ds0 ds1; do
    mkdir "$WORK/$server" "$WORK/$server/objects" "$WORK/$server/names"
    cat >"$WORK/$server.toml" <<END
session_grace = "8s"
[[listen]]
at = "unix:$WORK/$server.socket"
[[export]]
name = "objects"
directory = "$WORK/$server/objects"
gate = { scheduler = "fifo" }
users = { squash = "none" }
forwarders = ["$(id -un)"]
[[export]]
name = "names"
directory = "$WORK/$server/names"
gate = { scheduler = "fifo" }
users = { squash = "none" }
forwarders = ["$(id -un)"]
END
done
for number in 0 1; do
    cat >"$WORK/io$number.toml" <<END
node = $number
nodes = 2
session_grace = "8s"
[[listen]]
at = "unix:$WORK/io$number.socket"
[[export]]
servers = ["unix:$WORK/ds0.socket", "unix:$WORK/ds1.socket"]
stripe = "4KiB"
gate = { scheduler = "$SCHEDULER" }
users = { squash = "none" }
END
done
serve() {
    "$IOGATE" serve "$WORK/$1.toml" >"$WORK/$1.out" 2>>"$WORK/$1.log" &
    process[$1]=$!
    eventually 10 grep -q '^ready$' "$WORK/$1.out" || fail "$1 does not start: $(cat "$WORK/$1.log")"
}
killed() {
    kill -KILL "${process[$1]}"
    wait "${process[$1]}" 2>/dev/null || true
}
for node in ds0 ds1 io0 io1; do serve "$node"; done
"$IOGATE" mount --remote "unix:$WORK/io0.socket" "$MNT" --scheduler fifo --cache "$CACHE" "${transport[@]}" -f >>"$WORK/mount.log" 2>&1 &
GATE_PID=$!
eventually 10 is_mounted || fail "not mounted"
"$IOGATE" mount --remote "unix:$WORK/io1.socket" "$other" --scheduler fifo --cache "$CACHE" "${transport[@]}" || fail "not mounted"
touch "$MNT/file"

echo "== flock"
flock --no-fork --exclusive "$MNT/file" sleep 100 &
holder=$!
held_elsewhere() { ! flock --nonblock --shared "$1/file" true; }
is_free() { flock --nonblock --exclusive "$1/file" true; }
eventually 5 held_elsewhere "$other" || fail "a lock is not seen behind the other forwarder"
held_elsewhere "$MNT" || fail "a lock is not seen by its own mount"
flock --exclusive "$other/file" touch "$SIDE/had" &
waiter=$!
sleep 0.3
[ ! -e "$SIDE/had" ] || fail "two have a lock"
kill -KILL "$holder"
wait "$waiter" || fail "who waits does not get the lock"
[ -e "$SIDE/had" ]

cat >"$SIDE/count.py" <<'END'
# count.py FILE KIND TIMES WHO: adds to a number under a lock, and notes each number whose write was answered. What fails is begun anew: an open
# file whose lock is lost is of no use any more.
import fcntl, os, sys, time

path, kind, times, who = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
AT = 4090  # over a boundary of stripes
take = (lambda fd: fcntl.flock(fd, fcntl.LOCK_EX)) if kind == "flock" else (lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX))
drop = (lambda fd: fcntl.flock(fd, fcntl.LOCK_UN)) if kind == "flock" else (lambda fd: fcntl.lockf(fd, fcntl.LOCK_UN))
until = time.monotonic() + 300
notes = open(f"{who}.{kind}", "a")
fd = None
while times > 0:
    if time.monotonic() > until:
        sys.exit("no lock for five minutes")
    try:
        if fd is None:
            fd = os.open(path, os.O_RDWR)
        take(fd)
        number = int(os.pread(fd, 20, AT)) + 1
        assert os.pwrite(fd, str(number).ljust(20).encode(), AT) == 20
    except OSError as error:
        print(who, kind, error, file=sys.stderr)
        if fd is not None:
            try:
                os.close(fd)
            except OSError:
                pass
        fd = None
        time.sleep(0.02)
        continue
    print(number, file=notes, flush=True)
    times -= 1
    try:
        drop(fd)
    except OSError as error:
        print(who, kind, error, file=sys.stderr)
END
cat >"$SIDE/check.py" <<'END'
# check.py FILE KIND: what was noted by all is there once each.
import glob, os, sys

noted = [int(line) for path in glob.glob(f"*.{sys.argv[2]}") for line in open(path)]
fd = os.open(sys.argv[1], os.O_RDONLY)
last = int(os.pread(fd, 20, 4090))
assert len(noted) == len(set(noted)), f"written twice: {sorted(n for n in set(noted) if noted.count(n) > 1)}"
assert max(noted) <= last, (max(noted), last)
print(f"{len(noted)} of {last} were answered")
END
counters() {
    local kind
    for kind in flock fcntl; do
        python3 -c 'import os, sys; fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.pwrite(fd, b"0".ljust(20), 4090)' "$MNT/$kind"
        python3 "$SIDE/count.py" "$MNT/$kind" "$kind" "$1" here &
        counting+=($!)
        python3 "$SIDE/count.py" "$other/$kind" "$kind" "$1" there &
        counting+=($!)
    done
}
joined() {
    local pid
    for pid in "${counting[@]}"; do wait "$pid" || fail "a program that counts has ended with an error"; done
    counting=()
}
checked() {
    local kind
    for kind in flock fcntl; do
        (cd "$SIDE" && python3 check.py "$other/$kind" "$kind") || fail "$1: a number is lost, or two had the lock"
        rm -f "$SIDE"/*."$kind"
    done
}
counting=()
noted() { [ "$(cat "$SIDE"/*.flock "$SIDE"/*.fcntl 2>/dev/null | wc -l)" -ge "$1" ]; }

echo "== numbers"
counters 30
joined
for kind in flock fcntl; do
    grep -qx 60 <(sort -n "$SIDE"/*."$kind" | tail -n 1) || fail "a number is lost: $(sort -n "$SIDE"/*."$kind" | tail -n 1)"
done
checked "while nothing happens"

echo "== numbers, while each data server is killed"
counters 60
for server in ds0 ds1; do
    eventually 60 noted 60 || fail "nobody counts"
    killed "$server"
    sleep 0.5
    serve "$server"
done
joined
checked "after a kill of data servers"

echo "== numbers, while a forwarder is killed"
counters 60
eventually 60 noted 60 || fail "nobody counts"
killed io0
serve io0
joined
checked "after a kill of a forwarder"

echo "== a database that both write"
cat >"$SIDE/inserts.py" <<'END'
# inserts.py DATABASE WHO TIMES: what is read decides what is written. What fails is begun anew, by whoever opens the database anew.
import sqlite3, sys, time

path, who, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
notes = open(f"{who}.rows", "a")
until = time.monotonic() + 300
database, done = None, 0
while done < times:
    if time.monotonic() > until:
        sys.exit("no row for five minutes")
    try:
        if database is None:
            database = sqlite3.connect(path, timeout=120, isolation_level=None)
        database.execute("BEGIN IMMEDIATE")
        (count,) = database.execute("SELECT count(*) FROM rows").fetchone()
        database.execute("INSERT INTO rows VALUES (?, ?)", (count, f"{who} {done}"))
        database.execute("COMMIT")
    except sqlite3.Error as error:
        if isinstance(error, sqlite3.IntegrityError) or "malformed" in str(error):
            raise
        print(who, error, file=sys.stderr)
        if database is not None:
            database.close()
        database = None
        # What became of the last one is not known: the next has another name.
        done += 1
        continue
    print(f"{who} {done}", file=notes, flush=True)
    done += 1
END
cat >"$SIDE/rows.py" <<'END'
# rows.py DATABASE: it is whole, and has what was answered.
import glob, sqlite3, sys

database = sqlite3.connect(sys.argv[1], timeout=120)
assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
rows = database.execute("SELECT number, who FROM rows ORDER BY number").fetchall()
assert [number for number, _ in rows] == list(range(len(rows))), rows
noted = {line.rstrip("\n") for path in glob.glob("*.rows") for line in open(path)}
lost = noted - {who for _, who in rows}
assert not lost, f"answered, and not there: {sorted(lost)}"
print(f"{len(noted)} of {len(rows)} were answered")
END
python3 -c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, who TEXT)")' "$MNT/database"
inserted() { [ "$(cat "$SIDE"/*.rows 2>/dev/null | wc -l)" -ge "$1" ]; }
inserting=()
for who in 0 1 2 3; do
    place=$MNT
    [ $((who % 2)) -eq 0 ] || place=$other
    (cd "$SIDE" && exec python3 inserts.py "$place/database" "w$who" 25) &
    inserting+=($!)
done
eventually 120 inserted 10 || fail "nothing is inserted"
killed ds0
serve ds0
eventually 120 inserted 30 || fail "nothing is inserted after a kill of a data server"
killed io1
serve io1
for pid in "${inserting[@]}"; do wait "$pid" || fail "a database is not written"; done
(cd "$SIDE" && python3 rows.py "$other/database") || fail "a database is damaged"

echo "== who has lost a lock"
cat >"$SIDE/goes_on.py" <<'END'
# goes_on.py GO CACHE: who has the file locked, as descriptor 9, writes and reads it after a while.
import errno, os, sys, time

while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
# At the server that does not have the locks, too.
for at in (4096, 0):
    for use in (lambda: os.pwrite(9, b"lost", at), lambda: os.pread(9, 4, at)):
        try:
            found = use()
        except OSError as error:
            assert error.errno == errno.ESTALE, error
        else:
            # The kernel knows what it has cached, and where the file ends.
            if found or sys.argv[2] == "direct":
                sys.exit(f"who has lost a lock goes on at {at}: {found}")
END
holds() {
    rm -f "$SIDE/go"
    flock --no-fork --exclusive "$MNT/file" python3 "$SIDE/goes_on.py" "$SIDE/go" "$CACHE" 9<>"$MNT/file" &
    holder=$!
    eventually 5 held_elsewhere "$other" || fail "no lock"
}
holds
killed io0
serve io0
held_elsewhere "$other" || fail "a lock is another's while its client may still do as who has it"
eventually 60 is_free "$other" || fail "a lock stays after its forwarder has gone"
touch "$SIDE/go"
wait "$holder" || fail "expected a stale file"
[ ! -s "$other/file" ] || fail "who has lost a lock has written"

echo "== a forwarder that is stopped until its locks are lost"
holds
kill -STOP "${process[io0]}"
killed ds0
serve ds0
eventually 60 is_free "$other" || fail "a lock stays though who had it has not come back"
# What was sent to it meanwhile it finds before it knows of anything else.
touch "$SIDE/go"
sleep 0.5
kill -CONT "${process[io0]}"
wait "$holder" || fail "expected a stale file"
[ ! -s "$other/file" ] || fail "who has lost a lock has written"

echo "== a mount that is killed"
flock --no-fork --exclusive "$MNT/file" sleep 100 &
eventually 5 held_elsewhere "$other"
kill -KILL "$GATE_PID"
gate_ends 137
eventually 60 is_free "$other" || fail "a lock stays after its mount was killed"
umount --lazy "$MNT"

"$IOGATE" umount "$other"
for node in io0 io1 ds0 ds1; do
    kill -TERM "${process[$node]}"
    wait "${process[$node]}" || fail "$node ends with an error: $(tail -n 3 "$WORK/$node.log")"
done
[ ! -e "$WORK/ds0/names/.iogate/locked" ] || fail "a server that nobody holds a lock of still keeps them for somebody"
