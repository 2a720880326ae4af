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
    (exit "$status")
    clean_up
}
trap end_server EXIT

"$IOGATE" serve --directory "$SRC" --listen "unix:$SIDE/socket" >"$SIDE/serve.out" &
server=$!
eventually 10 grep -q ready "$SIDE/serve.out" || fail "the server does not start"
"$IOGATE" mount --remote "unix:$SIDE/socket" "$MNT" --cache "$CACHE"
is_mounted || fail "not mounted"
for round in $(seq 20); do
    echo "version $round" >"$SRC/file"
    [ "$(cat "$MNT/file")" = "version $round" ] || fail "round $round: $(cat "$MNT/file")"
    sleep 0.01 # so that the next change has another time
done
"$IOGATE" umount "$MNT"
