#!/usr/bin/env bash
# What is written in many ways at once is read back as it was, through the mount and from the source.
# limit: 60
# variants: fifo to-agg sjf mlf aioli hbrr app-window server-window twins fifo/page aioli/page aioli/direct/device fifo/page/device
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs fio
cat >"$SIDE/jobs.fio" <<END
[global]
directory=$MNT
verify=crc32c
verify_fatal=1
verify_state_save=0
verify_backlog=64
create_on_open=1
group_reporting=1

[sequential]
ioengine=psync
rw=write
bs=1m
size=24m
end_fsync=1

[random-sizes]
ioengine=psync
rw=randwrite
bsrange=512-192k
blockalign=512
size=16m
numjobs=2

[deep]
ioengine=libaio
iodepth=16
direct=1
rw=randwrite
bs=4k
size=8m

[strided]
ioengine=pvsync
rw=write:96k
bs=32k
size=8m
END

mount_gate
fio --output="$SIDE/fio.out" "$SIDE/jobs.fio" || fail "fio found a difference, or an error"
# One file for several writers of pieces of their own, and a reader of the whole.
shared() {
    fio --name=shared --filename="$MNT/shared" --ioengine=psync --rw=randwrite --bs=16k --size=2m --numjobs=4 \
        --offset_increment=2m --verify=crc32c --verify_fatal=1 --verify_state_save=0 --group_reporting \
        --output="$SIDE/fio.out" "$@" || fail "fio found a difference in the shared file, or an error"
}
shared
shared --verify_only
(cd "$MNT" && sha256sum -- *) >"$SIDE/through"
[ "$(wc -l <"$SIDE/through")" -ge 6 ] || fail "fio wrote fewer files than expected"
unmount_gate
(cd "$SRC" && sha256sum --check --quiet "$SIDE/through") || fail "the source differs from the mount"
