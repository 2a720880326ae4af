#!/usr/bin/env bash
# The source's file system is full: the program gets ENOSPC, what was acknowledged is kept, and space helps.
# limit: 60
# variants: fifo aioli twins fifo/page
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" -eq 0 ] || skip "a small file system takes root to mount"
mount -t tmpfs -o size=12m none "$SRC"
record() { yes "record $1" | head -c 262144 || true; }

mount_gate
written=0
for i in $(seq 100); do
    record "$i" | dd of="$MNT/record-$i" bs=64k iflag=fullblock conv=fsync status=none 2>"$SIDE/error" || break
    written=$i
done
[ "$written" -ge 30 ] && [ "$written" -lt 100 ] || fail "$written records were acknowledged on 12 MiB"
grep -q "No space left on device" "$SIDE/error" || fail "the program was not told ENOSPC: $(cat "$SIDE/error")"
refused any "no space left" dd if=/dev/zero of="$MNT/more" bs=1M count=8 conv=fsync status=none
refused any "no space left" fallocate --length 64M "$MNT/reserved"
for i in $(seq "$written"); do
    record "$i" | cmp - "$MNT/record-$i" || fail "record $i changed"
    record "$i" | cmp - "$SRC/record-$i" || fail "record $i changed in the source"
done
rm -f "$MNT"/record-1 "$MNT"/record-2 "$MNT"/more "$MNT"/reserved
dd if=/dev/zero of="$MNT/after" bs=64k count=4 conv=fsync status=none || fail "freed space cannot be used"

# What is removed makes room for what is written next, though the kernel says that a file is closed and forgotten only after it has answered `rm`.
rm -f "$MNT"/*
refusals=0
for _ in $(seq 30); do
    dd if=/dev/zero of="$MNT/fills" bs=1M count=20 status=none 2>"$SIDE/error" && fail "20 MiB on 12 MiB"
    rm "$MNT/fills"
    echo hi >"$MNT/next" || refusals=$((refusals + 1))
    rm -f "$MNT/next"
done
[ "$refusals" -eq 0 ] || fail "$refusals of 30 writes after a removal found no room"
unmount_gate
