#!/usr/bin/env bash
# What `iogate status` says in words of programs that read in sequence, at a stride, at random and both ways, from a real mount.
# limit: 60
# variants: fifo auto
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs fio jq
mount_gate
# does APP FIO-OPTIONS...: a program that is this application.
does() {
    local app=$1
    shift
    IOGATE_APP=$app fio --name="app-$app" --directory="$MNT/$app" --ioengine=psync --size=8m --output="$SIDE/fio-$app.out" \
        --fallocate=none "$@" || fail "fio of $app failed: $(tail -n 3 "$SIDE/fio-$app.out")"
}
# Files are made in the source, so that only what is looked at passes the gate.
for app in 11 12 13 14 15; do
    mkdir "$SRC/$app"
    for job in 0 1 2 3; do head -c 8388608 /dev/zero >"$SRC/$app/app-$app.$job.0"; done
done
does 11 --rw=read --bs=64k --numjobs=2
does 12 --rw=read:60k --bs=4k
does 13 --rw=randread --bs=4k --io_size=4m
does 14 --rw=randwrite --bs=8k --io_size=4m
does 15 --rw=randrw --rwmixread=50 --bs=4k --io_size=4m
"$IOGATE" status "$MNT" --json >"$SIDE/status.json" || fail "status failed"
"$IOGATE" status "$MNT" >"$SIDE/table" || fail "status failed"
jq -r '.patterns[] | "\(.app): \(.words)"' "$SIDE/status.json"
# says APP PATTERN
says() {
    local words
    words=$(jq -r --argjson app "$1" '.patterns[] | select(.app == $app).words' "$SIDE/status.json")
    [[ "$words" =~ $2 ]] || fail "of $1 it says '$words', not '$2'"
    grep -qF -- "$words" "$SIDE/table" || fail "the table does not say '$words'"
}
says 11 'clients read 64 KiB.*contiguously'
says 12 'client reads 4 KiB.*stride of 64 KiB'
says 13 'client reads 4 KiB.*at random'
says 14 'client writes 8 KiB.*at random'
says 15 'client.*read.*4 KiB.*at random'
unmount_gate
