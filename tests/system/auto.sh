#!/usr/bin/env bash
# A mount whose scheduler is chosen: under load that verifies itself it is pinned and let go, and its status says why what is in force is.
# limit: 90
# variants: fifo auto
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs fio jq
mount_gate
# Asks the status in JSON.
says() { "$IOGATE" status "$MNT" --json | jq -e "$@" >/dev/null; }

if [ "$SCHEDULER" = auto ]; then
    # By whether the kernel says that the source is on a rotating disk.
    says '.choice | (.scheduler == "fifo" or .scheduler == "aioli") and .switches == 0 and (.why | endswith("from the beginning"))' ||
        fail "it does not begin with a default"
else
    says 'has("choice") | not' || fail "a pinned scheduler is chosen"
    "$IOGATE" set "$MNT" scheduler=auto || fail "scheduler=auto is refused"
fi
fio --name=load --directory="$MNT" --ioengine=psync --rw=randrw --bsrange=4k-64k --size=4m --numjobs=4 --verify=crc32c \
    --verify_fatal=1 --verify_backlog=16 --verify_state_save=0 --time_based --runtime=6 --group_reporting --output="$SIDE/fio.out" &
load=$!
looked() { says '.choice.windows > 0 or .choice.held != null'; }
eventually 30 looked || fail "no window is looked at"
for _ in 1 2 3 4 5 6 7 8 9 10; do
    "$IOGATE" set "$MNT" scheduler=aioli contiguous_wait=0s || fail "it cannot be pinned"
    says '.scheduler == "aioli" and (has("choice") | not)' || fail "what was pinned is not in force"
    "$IOGATE" set "$MNT" scheduler=auto || fail "it cannot be let go"
    says 'has("choice")' || fail "it is not chosen again"
done
wait "$load" || fail "fio found a difference, or an error"
"$IOGATE" status "$MNT" >"$SIDE/status" || fail "status failed"
grep -q '^chosen  .*from the beginning\|^chosen  .* -> ' "$SIDE/status" || fail "the status does not say why"
grep -q '^choices ' "$SIDE/status" || fail "the status does not count"
refused any 'age_max=1s' "$IOGATE" set "$MNT" scheduler=auto age_max=1s
refused 2 'age_max=1s' "$IOGATE" mount "$SRC" "$SIDE" --scheduler auto --param age_max=1s
unmount_gate

# With several targets nothing is chosen, and that is said.
SCHEDULER=auto mount_gate --layout stripe=64KiB,targets=2
says '.choice.held | contains("several targets")' || fail "the status does not say why nothing is chosen"
echo data >"$MNT/file"
cmp "$MNT/file" "$SRC/file"
unmount_gate
