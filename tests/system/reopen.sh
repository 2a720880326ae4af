#!/usr/bin/env bash
# What another node has written to a file is seen as soon as it is opened anew, with the kernel's page cache too.
# limit: 30
# variants: fifo fifo/page
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

[ -c /dev/fuse ] || skip "there is no /dev/fuse"
server=
end_server() {
    local status=$?
    is_unmounted || umount --lazy "$MNT" || true
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    clean_up "$status"
}
trap end_server EXIT

"$IOGATE" serve --directory "$SRC" --listen "unix:$SIDE/socket" >"$SIDE/serve.out" &
server=$!
eventually 10 grep -q ready "$SIDE/serve.out" || fail "the server does not start"
"$IOGATE" mount --remote "unix:$SIDE/socket" "$MNT" --cache "$CACHE"
is_mounted || fail "not mounted"
python3 - "$SRC/file" "$MNT/file" <<'END' || fail "an earlier version is shown"
import os, sys, time
source, seen = sys.argv[1:]
for round in range(50):
    # Another size now and then, and always another time.
    data = b"version %d" % round
    fd = os.open(source, os.O_CREAT | os.O_WRONLY)
    os.pwrite(fd, data, 0)
    os.close(fd)
    fd = os.open(seen, os.O_RDONLY)
    found = os.pread(fd, 100, 0)
    os.close(fd)
    assert found == data, (found, data)
    time.sleep(0.01)
END
"$IOGATE" umount "$MNT"
