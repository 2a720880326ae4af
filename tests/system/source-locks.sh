#!/usr/bin/env bash
# Locks are taken on the files: of fcntl and of flock, they hold between two mounts of one directory, a server of it, and programs that use it past all
# of them. A mount of what may be other machines' does so by itself.
# limit: 120
# variants: fifo fifo/page fifo/direct/device
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs flock python3
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
transport=()
[ "$TRANSPORT" = auto ] || transport=(--no-uring)
other=$WORK/other served=$WORK/served stacked=$WORK/stacked
mkdir "$other" "$served" "$stacked"
server='' waiters=()
end() {
    local status=$? place
    for place in "$stacked" "$served" "$other"; do umount --lazy "$place" 2>/dev/null || true; done
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
    clean_up "$status"
}
trap end EXIT
mount_at() { "$IOGATE" mount "$@" --scheduler fifo --cache "$CACHE" "${transport[@]}" || fail "not mounted: $*"; }
mount_gate --locks source
mount_at "$SRC" "$other" --locks source
serve_source
mount_at --remote "unix:$WORK/socket" "$served"
places=("$MNT" "$other" "$served" "$SRC")
touch "$SRC/file"

echo "== flock"
held_at() { ! flock --nonblock --exclusive "$1/file" true; }
for holding in "${places[@]}"; do
    flock --no-fork --exclusive "$holding/file" sleep 100 &
    holder=$!
    for place in "${places[@]}"; do
        eventually 5 held_at "$place" || fail "what is locked at $holding is not at $place"
    done
    # Who waits has it when the other one is killed.
    for place in "${places[@]}"; do
        flock --exclusive "$place/file" touch "$SIDE/had" &
        waiters[${#waiters[@]}]=$!
    done
    sleep 0.2
    [ ! -e "$SIDE/had" ] || fail "two have a lock"
    kill -KILL "$holder"
    for waiter in "${waiters[@]}"; do wait "$waiter" || fail "who waits does not get the lock"; done
    waiters=()
    rm "$SIDE/had"
done

echo "== fcntl, by bytes"
cat >"$SIDE/count.py" <<'END'
"""Adds to a number that all have, under a lock of its bytes; those of the neighbour are locked by others meanwhile."""
import fcntl, os, struct, sys

path, at, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
fd = os.open(path, os.O_RDWR)

def lock(kind):
    # struct flock of 64-bit Linux.
    fcntl.fcntl(fd, fcntl.F_SETLKW, struct.pack("hhqqi4x", kind, os.SEEK_SET, at, 20, 0))

for _ in range(times):
    lock(fcntl.F_WRLCK)
    number = int(os.pread(fd, 20, at))
    os.pwrite(fd, str(number + 1).ljust(20).encode(), at)
    lock(fcntl.F_UNLCK)
END
printf '%-20s%-20s' 0 0 >"$SRC/counts"
counting=()
for place in "${places[@]}"; do
    for at in 0 20; do
        python3 "$SIDE/count.py" "$place/counts" "$at" 25 &
        counting+=($!)
    done
done
for pid in "${counting[@]}"; do wait "$pid" || fail "counting under a lock"; done
[ "$(tr -s ' ' <"$SRC/counts")" = "100 100 " ] || fail "what is changed under a lock is lost: $(cat "$SRC/counts")"

echo "== a database that programs at all places write"
one_database 20 "${places[@]}"

echo "== a mount of what may be other machines'"
mount_at "$served" "$stacked"
flock --no-fork --exclusive "$stacked/file" sleep 100 &
holder=$!
for place in "${places[@]}" "$stacked"; do
    eventually 5 held_at "$place" || fail "what is locked at a mount of a mount is not at $place"
done
kill -KILL "$holder"
wait "$holder" || true
flock --timeout 60 --exclusive "$SRC/file" true || fail "the lock is not given back"
"$IOGATE" umount "$stacked"

echo "== a mount's own"
"$IOGATE" umount "$other"
mount_at "$SRC" "$other"
flock --no-fork --exclusive "$other/file" sleep 100 &
holder=$!
eventually 5 held_at "$other" || fail "no lock at a mount's own place"
flock --nonblock --exclusive "$SRC/file" true || fail "a mount of this machine's disk takes its locks there unasked"
kill -KILL "$holder"
wait "$holder" || true

for place in "$other" "$served"; do "$IOGATE" umount "$place"; done
kill -TERM "$server"
wait "$server" || fail "the server failed"
server=''
unmount_gate
