#!/usr/bin/env bash
# Programs use files of a forwarder by the preload library: what is written in many ways at once, by processes, threads and MPI
# ranks, is read back as it was, and is so in the forwarder's directory.
# limit: 300
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs fio cc
root=$(cd "$(dirname "$0")/../.." && pwd)
built=${IOGATE%/*}
[ -x "$built/examples/forwarder" ] || fail "there is no $built/examples/forwarder: cargo build --workspace --lib --bins --examples"
library=$built/libiogate_preload.so
programs=$root/crates/iogate-preload/tests/programs

"$built/examples/forwarder" "$SRC" "unix:$SIDE/socket" 2>"$WORK/forwarder.log" &
forwarder=$!
eventually 10 test -S "$SIDE/socket" || fail "the forwarder does not listen"
export IOGATE_FORWARDERS=unix:$SIDE/socket IOGATE_PREFIX=/iogate-of-tests
here=$IOGATE_PREFIX

# Runs a program with the library.
with() { LD_PRELOAD=$library "$@"; }

echo "== fio"
cat >"$SIDE/jobs.fio" <<END
[global]
directory=$here
verify=crc32c
verify_fatal=1
verify_state_save=0
verify_backlog=64
create_on_open=1
group_reporting=1

[sequential]
ioengine=psync
rw=write
bs=1m
size=24m
end_fsync=1

[random-sizes]
ioengine=psync
rw=randwrite
bsrange=512-192k
blockalign=512
size=16m
numjobs=2

[threads]
ioengine=pvsync
thread
rw=randwrite
bs=4k
size=4m
numjobs=4

[strided]
ioengine=sync
rw=write:96k
bs=32k
size=8m
END
with fio --output="$SIDE/fio.out" "$SIDE/jobs.fio" || fail "fio found a difference, or an error"
# One file for several writers of pieces of their own, and a reader of the whole.
for only in "" --verify_only; do
    # shellcheck disable=SC2086
    with fio --name=shared --filename="$here/shared" --ioengine=psync --rw=randwrite --bs=16k --size=2m --numjobs=4 \
        --offset_increment=2m --verify=crc32c --verify_fatal=1 --verify_state_save=0 --group_reporting \
        --output="$SIDE/fio.out" $only || fail "fio found a difference in the shared file, or an error"
done
for engine in libaio io_uring; do
    # The kernel's own queues go past the library: an error, and nothing else.
    refused any "bad file descriptor" env LD_PRELOAD="$library" \
        fio --name="$engine" --directory="$here" --ioengine="$engine" --rw=write --bs=4k --size=64k
done
# The shell that knows what * is must know the files.
with bash -c 'sha256sum "$0"/*' "$here" >"$SIDE/through"
[ "$(wc -l <"$SIDE/through")" -ge 9 ] || fail "fio wrote fewer files than expected"
(cd "$SRC" && sed "s,$here/,," "$SIDE/through" | sha256sum --check --quiet) || fail "the source differs"
with find "$here" -mindepth 1 -delete
[ -z "$(ls -A "$SRC")" ] || fail "something is left"

if command -v rsync >/dev/null; then
    echo "== rsync"
    with rsync --archive /usr/share/doc/bash /etc/default "$here/"
    diff --recursive --no-dereference /usr/share/doc/bash "$SRC/bash" || fail "rsync's copy differs"
    changes=$(with rsync --archive --checksum --itemize-changes /usr/share/doc/bash /etc/default "$here/")
    [ -z "$changes" ] || fail "rsync would copy again: $changes"
    with rm -r "$here/bash" "$here/default"
fi

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# mpi NAME COMPILER RUNNER...: four ranks write one file.
mpi() {
    local name=$1 compiler=$2
    shift 2
    command -v "$compiler" >/dev/null && command -v "$1" >/dev/null || return 0
    echo "== $name"
    "$compiler" -o "$SIDE/$name" "$programs/mpiio.c"
    timeout 60 "$@" -n 4 env LD_PRELOAD="$library" "$SIDE/$name" "$here/$name" >"$SIDE/said" ||
        fail "$name: $(cat "$SIDE/said")"
    grep -qx "4 ranks, 0 wrong" "$SIDE/said" || fail "$name says: $(cat "$SIDE/said")"
    timeout 60 "$@" -n 4 "$SIDE/$name" "$SIDE/$name.plain" >/dev/null
    cmp "$SRC/$name" "$SIDE/$name.plain" || fail "$name: the file differs from one of a plain directory"
}
mpi mpich mpicc.mpich mpirun.mpich
mpi ompio mpicc.openmpi mpirun.openmpi --oversubscribe
mpi romio mpicc.openmpi mpirun.openmpi --oversubscribe --mca io romio321

if [ "$(id -u)" -eq 0 ] && unshare --mount true 2>/dev/null; then
    echo "== locks in a folder that somebody else has made"
    chmod 755 "$WORK" "$SIDE" && chmod 666 "$SIDE/socket" && chmod 1777 "$SRC"
    # locked SCRIPT SAYS: what a lock of user 2002 does, and where its file is, after somebody has made something in memory.
    # The memory is the test's own: other programs' locks are elsewhere.
    locked() {
        local says
        says=$(unshare --mount bash -s 2>>"$WORK/locks.log" <<END
mount -t tmpfs -o mode=1777 none /dev/shm
mkdir -m 1777 /dev/shm/elsewhere
cd /dev/shm
$1
LD_PRELOAD=$library setpriv --reuid 2002 --regid 2002 --clear-groups flock --nonblock "$here/by-2002" echo held 2>&1
find iogate-locks* -mindepth 1 -printf '%H %u '
ls elsewhere
END
        )
        says=$(echo $says)
        [[ $says == *"$2" ]] || fail "after '$1': '$says' instead of '$2'"
    }
    other="setpriv --reuid 2001 --regid 2001 --clear-groups"
    locked ":" "held iogate-locks-2002 2002"
    locked "mkdir -m 1777 iogate-locks" "held iogate-locks 2002"
    locked "$other mkdir -m 1777 iogate-locks" "held iogate-locks-2002 2002"
    locked "$other ln -s /dev/shm/elsewhere iogate-locks" "held iogate-locks-2002 2002"
    locked "$other mkdir -m 777 iogate-locks-2002" "flock: $here/by-2002: No locks available"
    locked "$other ln -s /dev/shm/elsewhere iogate-locks-2002" "flock: $here/by-2002: No locks available"
fi

echo "== a forwarder that is gone"
with dd if=/dev/zero of="$here/long" bs=64k count=400 status=none &
writer=$!
eventually 10 test -s "$SRC/long" || fail "nothing is written"
kill -KILL "$forwarder" && { wait "$forwarder" || true; } 2>/dev/null
"$built/examples/forwarder" "$SRC" "unix:$SIDE/socket" 2>>"$WORK/forwarder.log" &
wait "$writer" || fail "the program has noticed that the forwarder was gone for a while"
[ "$(stat -c %s "$SRC/long")" -eq $((400 * 65536)) ] || fail "the file has $(stat -c %s "$SRC/long") bytes"
