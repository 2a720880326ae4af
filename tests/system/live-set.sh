#!/usr/bin/env bash
# Every change from one scheduler to another under load that verifies itself: nothing lost, nothing twice.
# limit: 60
# variants: fifo fifo/page
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs fio jq
mount_gate
# Goes on until all changes have been made, however long that takes. At a rate, so that it does not keep the changes from being made.
verified_load() {
    until [ -e "$SIDE/over" ]; do
        fio --name=load --directory="$MNT" --ioengine=psync --rw=randrw --bsrange=4k-128k --size=16m --numjobs=4 \
            --verify=crc32c --verify_fatal=1 --verify_backlog=16 --verify_state_save=0 --time_based --runtime=4 \
            --rate_iops=150 --rate_process=poisson --group_reporting --output="$SIDE/fio.out" || return 1
    done
}
verified_load &
load=$!
switches=0
for from in $SCHEDULERS; do
    for to in $SCHEDULERS; do
        ! is_gone "$load" || break 2
        "$IOGATE" set "$MNT" "scheduler=$from" && "$IOGATE" set "$MNT" "scheduler=$to" || fail "set $from, $to"
        "$IOGATE" status "$MNT" --json >"$SIDE/status.json" || fail "status failed"
        jq -e --arg name "$to" '[.. | strings] | index($name) != null' "$SIDE/status.json" >/dev/null ||
            fail "status does not name the scheduler $to"
        switches=$((switches + 2))
    done
done
touch "$SIDE/over"
wait "$load" || fail "fio found a difference, or an error"
echo "$switches switches"
[ "$switches" -eq 162 ] || fail "only $switches switches while fio ran"
"$IOGATE" set "$MNT" scheduler=aioli
"$IOGATE" set "$MNT" quantum_base=64KiB || fail "a parameter cannot be set live"
refused any 'aioli' "$IOGATE" set "$MNT" scheduler=aiolo
refused any 'quantum_base' "$IOGATE" set "$MNT" quantum_bas=64KiB
refused any 'quantum_base' "$IOGATE" set "$MNT" quantum_base=1
unmount_gate
