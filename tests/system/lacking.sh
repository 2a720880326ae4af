#!/usr/bin/env bash
# Machines that lack something: without io_uring all is as with it; without FUSE a mount says in a line what to do, and programs use files of servers by
# the preload library as ever.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs python3 unshare setpriv jq
[ "$(id -u)" -eq 0 ] || skip "taking something from a process takes root"
here=$(cd "$(dirname "$0")" && pwd)
# refused_in_a_line PATTERN COMMAND...
refused_in_a_line() {
    refused 1 "$@"
    grep -v '^  hint: ' "$SIDE/refused" >"$SIDE/without-hint" || true
    [ "$(wc -l <"$SIDE/without-hint")" -eq 1 ] || fail "it says more than one line"
}
# Where the kernel gives it, or else what is not given shows nothing.
has_ring() { python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(425, 1, bytes(120)) < 0)'; }

program=$IOGATE
head -c 3000000 /dev/urandom >"$SIDE/random"
for errno in ENOSYS EPERM; do
    echo "== without io_uring: $errno"
    printf '#!/bin/sh\nexec python3 "%s" %s "%s" "$@"\n' "$here/without_ring.py" "$errno" "$program" >"$SIDE/without-ring"
    chmod +x "$SIDE/without-ring"
    if has_ring; then
        refused_in_a_line 'io_uring, or does not permit it' "$SIDE/without-ring" mount "$SRC" "$MNT" --backend ring
        refused_in_a_line 'io_uring, or does not permit it' "$SIDE/without-ring" mount "$SRC" "$MNT" --backend ring --foreground
        is_unmounted || fail "something is mounted"
    fi
    for how in "" --direct; do
        IOGATE=$SIDE/without-ring
        # shellcheck disable=SC2086 # no flag, or one
        mount_gate $how
        IOGATE=$program
        "$IOGATE" status --json "$MNT" | jq -e '.about | tostring | contains("/dev/fuse")' >/dev/null || fail "the mount has another transport"
        dd if="$SIDE/random" of="$MNT/file" bs=64k conv=fsync status=none
        cmp "$SIDE/random" "$MNT/file" || fail "it reads what was not written"
        cmp "$SIDE/random" "$SRC/file" || fail "the source has what was not written"
        unmount_gate
    done
    : >"$SIDE/server.out" # an earlier one has said that it is ready, too
    "$SIDE/without-ring" serve --directory "$SRC" --listen "unix:$SIDE/socket" >"$SIDE/server.out" 2>&1 &
    SERVER=$!
    eventually 10 grep -qx ready "$SIDE/server.out" || fail "no server: $(cat "$SIDE/server.out")"
    "$IOGATE" mount --remote "unix:$SIDE/socket" "$MNT" || fail "the server cannot be mounted"
    cmp "$SIDE/random" "$MNT/file" || fail "the server reads what was not written"
    "$IOGATE" umount "$MNT"
    kill -TERM "$SERVER"
    wait "$SERVER" || fail "the server did not end well"
done

echo "== without FUSE"
# A /dev of its own has the program, so that a user who may not look into this folder can start it.
strip -o "$SIDE/iogate" "$program"
cat >"$SIDE/without-fuse" <<'END'
#!/bin/bash
set -eu
mount -t tmpfs -o mode=755 dev /dev
mknod -m 666 /dev/null c 1 3
mkdir -m 777 /dev/source /dev/gate
cp "$SIDE/iogate" /dev/iogate
cd /dev
exec "$@"
END
chmod +x "$SIDE/without-fuse"
export SIDE
somebody=(setpriv --reuid 1234 --regid 1234 --clear-groups)
for flags in "" --foreground; do
    for as in root somebody; do
        command=(/dev/iogate mount source gate)
        [ -z "$flags" ] || command+=("$flags")
        [ "$as" = root ] || command=("${somebody[@]}" "${command[@]}")
        refused_in_a_line '/dev/fuse cannot be used: No such file.*modprobe fuse' unshare --mount "$SIDE/without-fuse" "${command[@]}"
    done
done
# The device, but not what lets users mount.
cat >"$SIDE/without-fuse3" <<'END'
#!/bin/bash
mknod -m 666 /dev/fuse c 10 229
exec env PATH=/nowhere "$@"
END
chmod +x "$SIDE/without-fuse3"
refused_in_a_line 'install fuse3' unshare --mount "$SIDE/without-fuse" "$SIDE/without-fuse3" "$(command -v setpriv)" "${somebody[@]:1}" /dev/iogate mount source gate

: >"$SIDE/server.out"
"$IOGATE" serve --directory "$SRC" --listen "unix:$SIDE/socket" >"$SIDE/server.out" 2>&1 &
SERVER=$!
eventually 10 grep -qx ready "$SIDE/server.out" || fail "no server: $(cat "$SIDE/server.out")"
unshare --mount "$SIDE/without-fuse" env LD_PRELOAD="${IOGATE%/*}/libiogate_preload.so" IOGATE_FORWARDERS="unix:$SIDE/socket" cat /iogate/file >"$SIDE/read" ||
    fail "a program without FUSE cannot read what a server has"
cmp "$SIDE/random" "$SIDE/read" || fail "it reads what the server has not"
