#!/usr/bin/env bash
# docs/mount.md is true of what a mount does not do: file systems below the source, and handles of files.
# limit: 60
# variants: fifo fifo/page
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs python3
[ "$(id -u)" -eq 0 ] || skip "mounting takes root"
VIEW=$WORK/view
end_views() {
    local status=$? point
    ! is_mounted || umount --lazy "$MNT" || true
    for point in "$VIEW" "$SRC/one" "$SRC/two"; do
        ! mountpoint --quiet "$point" || umount --lazy "$point" || true
    done
    clean_up "$status"
}
trap end_views EXIT

mkdir "$SRC/one" "$SRC/two" "$VIEW"
for name in one two; do
    mount -t tmpfs none "$SRC/$name" || skip "there is no tmpfs"
    echo "of $name" >"$SRC/$name/file"
done
identity() { stat -c "%d:%i" "$1"; }
[ "$(stat -c %i "$SRC/one/file")" = "$(stat -c %i "$SRC/two/file")" ] || skip "new file systems number their files in different ways"

echo "== file systems below the source"
mount_gate
[ "$(cat "$MNT/one/file" "$MNT/two/file" | xargs)" = "of one of two" ] || fail "a file below is not the one that it is"
[ "$(identity "$MNT/one/file")" = "$(identity "$MNT/two/file")" ] || fail "the docs say that the two cannot be told apart by numbers"
unmount_gate
mount --bind "$SRC" "$VIEW"
SRC=$VIEW mount_gate
[ -d "$MNT/one" ] && [ ! -e "$MNT/one/file" ] || fail "a view shows what is mounted below the source"

echo "== handles"
echo text >"$MNT/handle"
cat >"$SIDE/handle.py" <<'END'
import ctypes, errno, os, sys

libc = ctypes.CDLL(None, use_errno=True)


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_char * 128)]


what, mount, kept = sys.argv[1:]
handle, number = Handle(128), ctypes.c_int()
if what == "make":
    path = f"{mount}/handle".encode()
    assert libc.name_to_handle_at(-100, path, ctypes.byref(handle), ctypes.byref(number), 0) == 0
    open(kept, "wb").write(bytes(handle))
else:
    handle = Handle.from_buffer_copy(open(kept, "rb").read())
fd = libc.open_by_handle_at(os.open(mount, os.O_RDONLY), ctypes.byref(handle), os.O_RDONLY)
print(os.read(fd, 10).decode().strip() if fd >= 0 else errno.errorcode[ctypes.get_errno()])
END
[ "$(python3 "$SIDE/handle.py" make "$MNT" "$SIDE/kept")" = text ] || fail "a file that the kernel knows is not found by its handle"
unmount_gate
SRC=$VIEW mount_gate
[ "$(python3 "$SIDE/handle.py" use "$MNT" "$SIDE/kept")" = ESTALE ] || fail "a file that the kernel does not know is not stale"
unmount_gate
