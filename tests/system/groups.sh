#!/usr/bin/env bash
# Supplementary groups are those that a process has, whatever the user database says: on a mount over a server, over a forwarder, and
# with the preload library.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" -eq 0 ] || skip "several users take root"
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
pids=()
end_servers() {
    local status=$?
    is_unmounted || umount --lazy "$MNT" || true
    [ "${#pids[@]}" -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
    clean_up "$status"
}
trap end_servers EXIT

# Nobody is in this group, and nobody has this number.
USER_ID=61234 GROUP=62345
as() { setpriv --reuid "$USER_ID" --regid "$USER_ID" "$@"; }
with() { as --groups "$GROUP" "$@"; }
without() { as --clear-groups "$@"; }

serve() {
    local name=$1 store=$2
    cat >"$SIDE/$name.toml" <<END
[[listen]]
at = "unix:$SIDE/$name.socket"
[[export]]
$store
forwarders = ["root"]
users = { squash = "none" }
END
    "$IOGATE" serve "$SIDE/$name.toml" >"$SIDE/$name.out" &
    pids+=($!)
    eventually 10 grep -q ready "$SIDE/$name.out" || fail "$name does not start"
}
chmod 711 "$WORK" "$SIDE"
without test -x "$SIDE" || skip "other users cannot reach $SIDE"
serve server "directory = \"$SRC\""
serve forwarder "forward = \"unix:$SIDE/server.socket\""

mkdir "$SRC/shared" && chgrp "$GROUP" "$SRC/shared" && chmod 2770 "$SRC/shared"
echo "for the group" >"$SRC/shared/file"
chgrp "$GROUP" "$SRC/shared/file" && chmod 660 "$SRC/shared/file"
for through in server forwarder; do
    "$IOGATE" mount --remote "unix:$SIDE/$through.socket" "$MNT"
    [ "$(with cat "$MNT/shared/file")" = "for the group" ] || fail "the group of the process does not count ($through)"
    ! without cat "$MNT/shared/file" 2>/dev/null || fail "it can be read without the group ($through)"
    with touch "$MNT/shared/new-$through" || fail "the group may not create a file ($through)"
    [ "$(stat -c %u:%g "$SRC/shared/new-$through")" = "$USER_ID:$GROUP" ] || fail "the file is another's"
    # One process, which gives its group up.
    with setpriv --no-new-privs bash -c "cat '$MNT/shared/file' >/dev/null" || fail "a child has lost the group"
    "$IOGATE" umount "$MNT"
    eventually 5 is_unmounted || fail "still mounted"
done

# A process with the preload library proves who it is to the kernel, its groups too; what it says of them does not count.
library=$(dirname "$IOGATE")/libiogate_preload.so
[ -f "$library" ] || skip "there is no $library"
export IOGATE_FORWARDERS="unix:$SIDE/server.socket"
with env LD_PRELOAD="$library" cat /iogate/shared/file | grep "for the group" >/dev/null || fail "preload: the group does not count"
! without env LD_PRELOAD="$library" cat /iogate/shared/file 2>/dev/null || fail "preload: readable without the group"
