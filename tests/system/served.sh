#!/usr/bin/env bash
# What lies behind a server goes wrong: its disk is full, its directory vanishes. The program that writes is told, what was
# written before stays, and the server goes on. Then the server itself stands still for a while.
# limit: 90
# variants: fifo aioli
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

SMALL=$WORK/small
SERVER=
end() {
    local status=$?
    is_unmounted || umount --lazy "$MNT" || true
    [ -z "$SERVER" ] || kill -KILL "$SERVER" 2>/dev/null || true
    ! mountpoint --quiet "$SMALL" || umount --lazy "$SMALL" || true
    clean_up "$status"
}
trap end EXIT
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
mkdir "$SMALL" "$WORK/gone"
mount -t tmpfs -o size=16m tmpfs "$SMALL" 2>/dev/null || skip "a small file system takes the right to mount"

cat >"$WORK/server.toml" <<END
[[listen]]
at = "unix:$WORK/socket"
[[export]]
name = "small"
directory = "$SMALL"
gate = { scheduler = "$SCHEDULER" }
users = { squash = "none" }
[[export]]
name = "gone"
directory = "$WORK/gone"
users = { squash = "none" }
END
serve() {
    "$IOGATE" serve "$WORK/server.toml" >"$WORK/server.out" 2>>"$WORK/server.log" 3>&- &
    SERVER=$!
    eventually 10 grep -q '^ready$' "$WORK/server.out" || fail "the server does not start"
}
serve
refused 1 'there is no export .nowhere.' "$IOGATE" set "unix:$WORK/socket" --export nowhere scheduler=sjf
! grep -q hint "$SIDE/refused" || fail "a server's refusal is taken for this machine's"
refused 1 'move the file away' "$IOGATE" serve --directory "$SMALL" --listen "unix:$WORK/server.toml"
show() { "$IOGATE" mount --remote "unix:$WORK/socket" --export "$1" "$MNT" || fail "not mounted"; }
show small

# --- A full disk.
head -c 6000000 /dev/urandom >"$SIDE/before"
cp "$SIDE/before" "$MNT/before"
sync "$MNT/before"
refused any 'No space left' dd if=/dev/zero of="$MNT/too-much" bs=64K count=400 conv=fsync
cmp "$SIDE/before" "$MNT/before" || fail "what was written before is damaged"
refused any 'No space left' dd if="$SIDE/before" of="$MNT/before" bs=64K seek=200 conv=notrunc,fsync
rm "$MNT/too-much"
cp "$SIDE/before" "$MNT/after"
cmp "$SIDE/before" "$MNT/after" || fail "the server does not go on when there is room again"
rm "$MNT/after"

# --- The server stands still: programs wait, and go on.
writer() {
    local i
    for i in $(seq 20); do
        dd if="$SIDE/before" of="$MNT/still-$i" bs=32K count=4 skip="$i" conv=fsync status=none || return 1
        echo "$i" >>"$SIDE/done"
    done
}
writer &
writing=$!
begun() { [ "$(cat "$SIDE/done" 2>/dev/null | wc -l)" -ge 2 ]; }
eventually 20 begun || fail "the writer does not get on"
kill -STOP "$SERVER"
sleep 2
# Meanwhile the mount says how it is, to who may change it. (`set` waits where a program makes a file in the root just then: the kernel
# locks the root for both.)
for question in "status $MNT" "top --once $MNT" "why $MNT"; do
    # shellcheck disable=SC2086 # words
    timeout 10 "$IOGATE" $question >"$SIDE/said" || fail "iogate $question, while the server stands still"
done
timeout 10 "$IOGATE" status "$MNT" | grep -q '^connection .*a request has waited for its answer for' ||
    fail "nothing says that a request waits: $(timeout 10 "$IOGATE" status "$MNT" | grep ^connection)"
kill -CONT "$SERVER"
wait "$writing" || fail "the writer got an error"
for i in $(seq 20); do
    dd if="$SIDE/before" bs=32K count=4 skip="$i" status=none | cmp - "$MNT/still-$i" || fail "file $i is not whole"
done

# --- It is killed and comes back: an open file goes on.
exec 3<>"$MNT/open"
echo one >&3
kill -KILL "$SERVER"
wait "$SERVER" 2>/dev/null || true
serve
echo two >&3
exec 3>&-
[ "$(cat "$MNT/open")" = "$(printf 'one\ntwo')" ] || fail "an open file does not outlive the server: $(cat "$MNT/open")"
eventually 5 "$IOGATE" umount "$MNT"

# --- A directory that vanishes.
show gone
echo content >"$MNT/file"
exec 3<"$MNT/file"
rm -r "$WORK/gone"
# The kernel believes what it knows of a name for a second.
is_not_found() { ! ls "$MNT/file" >/dev/null 2>&1; }
eventually 5 is_not_found || fail "the file can still be found"
refused any 'No such file|Stale' ls "$MNT/file"
refused any 'No such file|Stale' touch "$MNT/other"
[ "$(cat <&3)" = content ] || fail "an open file of the directory that is gone cannot be read"
exec 3<&-
eventually 5 "$IOGATE" umount "$MNT"
show small
cmp "$SIDE/before" "$MNT/before" || fail "the other export is not what it was"
"$IOGATE" status "unix:$WORK/socket" >"$SIDE/status"
grep -q 'export gone' "$SIDE/status" || fail "the server does not say how it is"
eventually 5 "$IOGATE" umount "$MNT"
kill -TERM "$SERVER"
status=0
wait "$SERVER" || status=$?
SERVER=
[ "$status" -eq 0 ] || fail "the server ended with status $status"
[ ! -e "$WORK/socket" ] || fail "its socket is left"
refused 1 'gone' "$IOGATE" serve "$WORK/server.toml"
