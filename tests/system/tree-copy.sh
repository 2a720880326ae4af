#!/usr/bin/env bash
# A tree with everything a tree can hold is copied onto the mount and back, and compared byte for byte.
# limit: 60
# variants: fifo aioli twins fifo/page aioli/direct/device
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs setfattr getfattr tar
tree=$SIDE/tree
mkdir -p "$tree/deep/$(printf 'd%.0s' {1..200})/er" "$tree/many" "$tree/empty"
for size in 0 1 511 512 513 4095 4096 4097 131072 131073 1048577 5000000; do
    head -c "$size" /dev/urandom >"$tree/size-$size"
done
for i in $(seq 600); do echo "$i" >"$tree/many/file number $i"; done
printf 'x' >"$tree/name with "$'\n'" newline, ünïcödé, and '*'"
ln "$tree/size-4097" "$tree/deep/hard"
ln "$tree/size-4097" "$tree/hard"
ln -s size-513 "$tree/symlink"
ln -s "$(printf 'gone%.0s' {1..200})" "$tree/symlink-broken"
ln -s /etc "$tree/symlink-absolute"
truncate --size=32M "$tree/sparse"
printf 'island' | dd of="$tree/sparse" bs=1 seek=$((16 << 20)) conv=notrunc status=none
mkfifo "$tree/fifo"
chmod 4711 "$tree/size-512" && chmod 0000 "$tree/size-511" && chmod 1777 "$tree/empty"
[ "$(id -u)" -ne 0 ] || chown 12345:54321 "$tree/size-513"
setfattr -n user.colour -v "blue green" "$tree/size-4096"
setfattr -n user.binary -v 0x00ff00fe "$tree/size-4096"
setfattr -n user.folder -v yes "$tree/many"
touch -d '1999-12-31 23:59:59.123456789 UTC' "$tree/size-1" "$tree/many"

# Everything about a tree but its content and its place: type, mode, owner, links, size, time, target; xattrs.
describe() {
    (cd "$1" && find . -mindepth 1 \( -type d -printf '%P %y %m %U:%G %T@\0' -o -printf '%P %y %m %U:%G %n %s %T@ %l\0' \) |
        sort -z | tr '\0' '\n' && getfattr --recursive --no-dereference --dump -m '^user\.' -- . 2>/dev/null)
}
same() {
    diff --recursive --no-dereference --exclude=fifo "$1" "$2" || fail "$2 differs from $1 in content"
    describe "$1" >"$SIDE/one"
    describe "$2" >"$SIDE/two"
    diff "$SIDE/one" "$SIDE/two" || fail "$2 differs from $1 in attributes"
    [ "$2/hard" -ef "$2/deep/hard" ] && [ "$2/hard" -ef "$2/size-4097" ] || fail "$2: hard links are not kept"
}

mount_gate
cp --archive --sparse=always "$tree" "$MNT/tree"
same "$tree" "$MNT/tree"
same "$tree" "$SRC/tree"
[ "$(stat -c %b "$SRC/tree/sparse")" -lt 2048 ] || fail "the sparse file is not sparse in the source"
cp --archive --sparse=always "$MNT/tree" "$SIDE/back"
same "$tree" "$SIDE/back"
tar -C "$tree" --xattrs --sparse -cf "$SIDE/tree.tar" .
tar -C "$MNT/tree" --xattrs --compare -f "$SIDE/tree.tar" || fail "tar finds a difference"
mkdir "$MNT/unpacked"
tar -C "$MNT/unpacked" --xattrs --same-owner -xpf "$SIDE/tree.tar"
same "$tree" "$MNT/unpacked"
rm -r "$MNT/tree" "$MNT/unpacked"
[ -z "$(ls -A "$MNT")" ] && [ -z "$(ls -A "$SRC")" ] || fail "something is left after rm -r"
unmount_gate
