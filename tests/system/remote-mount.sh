#!/usr/bin/env bash
# Programs use a server's files by a mount: what they write in many ways is read back as it was, and is so in the server's directory.
# What is not right is refused in a few seconds, and nothing stays mounted.
# limit: 150
# variants: fifo aioli fifo/page aioli/direct/device
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs fio git
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
transport=()
[ "$TRANSPORT" = auto ] || transport=(--no-uring)
cat >"$WORK/server.toml" <<END
[[listen]]
at = "unix:$WORK/socket"
[[export]]
directory = "$SRC"
gate = { scheduler = "$SCHEDULER" }
users = { squash = "none" }
END
mount_remote() {
    "$IOGATE" mount --remote "$1" "$MNT" --scheduler fifo --cache "$CACHE" "${transport[@]}"
}

echo "== what is not right"
refused 1 'cannot be reached' "$IOGATE" mount --remote "unix:$WORK/nobody" "$MNT"
refused 1 '127.0.0.1:9 cannot be reached' "$IOGATE" mount --remote 127.0.0.1:9 "$MNT"
refused 2 'port is missing' "$IOGATE" mount --remote localhost "$MNT"
refused 2 'IOGATE_FORWARDERS' env IOGATE_FORWARDERS=localhost "$IOGATE" mount "$MNT"
refused 2 'SOURCE MOUNTPOINT' "$IOGATE" mount "$MNT"
refused 2 'cannot be used with' "$IOGATE" mount --remote localhost:9 "$SRC" "$MNT"
refused 2 'cannot be used with' "$IOGATE" mount --remote localhost:9 --direct "$MNT"
refused 2 'index' "$IOGATE" mount --remote localhost:9 --index 1 "$MNT"
is_unmounted || fail "something is mounted"

"$IOGATE" serve "$WORK/server.toml" >"$WORK/server.out" 2>"$WORK/server.log" &
server=$!
eventually 10 grep -q '^ready$' "$WORK/server.out" || fail "the server does not start"
mount_remote "unix:$WORK/socket" || fail "not mounted"

echo "== fio"
verified() {
    fio --directory="$MNT" --verify=crc32c --verify_fatal=1 --verify_state_save=0 --group_reporting \
        --output="$SIDE/fio.out" "$@" || fail "fio found a difference, or an error: $(tail -n 5 "$SIDE/fio.out")"
}
verified --name=sequential --ioengine=psync --rw=write --bs=1m --size=16m --end_fsync=1
verified --name=random --ioengine=psync --rw=randwrite --bsrange=512-192k --blockalign=512 --size=8m --numjobs=2
verified --name=deep --ioengine=libaio --iodepth=16 --direct=1 --rw=randwrite --bs=4k --size=4m

echo "== git"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@localhost GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test@localhost
mkdir "$SIDE/origin"
for i in $(seq 100); do head -c 2000 /dev/urandom | base64 >"$SIDE/origin/part $i"; done
git -C "$SIDE/origin" init -q
git -C "$SIDE/origin" add .
git -C "$SIDE/origin" commit -qm one
git clone -q "file://$SIDE/origin" "$MNT/clone"
echo more >>"$MNT/clone/part 1"
git -C "$MNT/clone" commit -qam two
git -C "$MNT/clone" gc -q
git -C "$MNT/clone" fsck --strict --no-progress || fail "git fsck on the mount"
git -C "$SRC/clone" fsck --strict --no-progress || fail "git fsck in the server's directory"

echo "== tar, links, renames"
tar -C "$SIDE/origin" -cf "$SIDE/origin.tar" .
mkdir "$MNT/unpacked"
tar -C "$MNT/unpacked" -xpf "$SIDE/origin.tar"
tar -C "$MNT/unpacked" --compare -f "$SIDE/origin.tar" || fail "tar finds a difference"
mkdir -p "$MNT/a/b"
echo 1 >"$MNT/a/b/one"
ln "$MNT/a/b/one" "$MNT/a/b/two"
(
    cd "$MNT/a/b"
    mv "$MNT/a" "$MNT/renamed"
    echo 2 >>two
    [ "$(cat one)" = $'1\n2' ]
) || fail "a directory in use is lost when one above it is renamed"
[ "$MNT/renamed/b/one" -ef "$MNT/renamed/b/two" ] || fail "two names of one file are two files"

echo "== status"
"$IOGATE" status "$MNT" >"$SIDE/status"
grep -q "connected to unix:$WORK/socket" "$SIDE/status" || fail "$(cat "$SIDE/status")"
grep -Eq 'sequential|random|deep' "$SIDE/status" || fail "files are not named"
"$IOGATE" set "$MNT" scheduler=sjf

(cd "$MNT" && find . -type f ! -path './clone/.git/*' -print0 | sort -z | xargs -0 sha256sum) >"$SIDE/through"
"$IOGATE" umount "$MNT" || fail "iogate umount failed"
eventually 5 is_unmounted || fail "still mounted"
(cd "$SRC" && sha256sum --check --quiet "$SIDE/through") || fail "the server's directory differs from the mount"
kill "$server"
eventually 10 is_gone "$server" || fail "the server does not end"
