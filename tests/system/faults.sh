#!/usr/bin/env bash
# Processes of a two-layer cluster and of its clients are killed or stand still under load that checks what it reads: what was
# acknowledged as durable is there, the others go on, and everything recovers by itself.
# limit: 180
# variants: fifo
# alone: what stands still must not be what is merely slow
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs fio
CLUSTER=$WORK/cluster
OTHER=$WORK/other # a second client's mount
mkdir "$OTHER"
cluster() { "$IOGATE" cluster "$@" --dir "$CLUSTER"; }
up() { cluster up "$WORK/cluster.toml" >>"$SIDE/up"; }
end_cluster() {
    local status=$? point
    for point in "$MNT" "$OTHER"; do umount --lazy "$point" 2>/dev/null || true; done
    [ ! -e "$CLUSTER/cluster.toml" ] || cluster down faults --purge || true
    clean_up "$status"
}
trap end_cluster EXIT
pid_of() { cut -d ' ' -f 1 "$CLUSTER/$1.pid"; }

[ -c /dev/fuse ] || skip "there is no /dev/fuse"
cat >"$WORK/cluster.toml" <<END
name = "faults"
servers = { count = 3, gate = { scheduler = "app-window", window = "1ms" } }
forwarders = { count = 2, gate = { scheduler = "twins" } }
END
up
entrances=$(cluster status faults --entrances)
# client PLACE: a mount whose process is CLIENT.
client() {
    "$IOGATE" mount --remote "$entrances" "$1" -f >>"$WORK/mount.log" 2>&1 &
    CLIENT=$!
    eventually 10 mountpoint --quiet "$1" || fail "the mount at $1 did not come up"
}
client "$MNT"
first=$CLIENT
client "$OTHER"
second=$CLIENT

head -c 4000000 /dev/urandom >"$SIDE/data"
# writer PLACE NAME COUNT: files of 100 KB, each noted when it is durable. Ends with the first error.
writer() {
    local i
    for i in $(seq "$3"); do
        dd if="$SIDE/data" of="$1/$2-$i" bs=20000 count=5 skip="$i" conv=fsync status=none 2>/dev/null || return 1
        echo "$i" >>"$SIDE/durable-$2"
    done
}
durable() { [ "$(cat "$SIDE/durable-$1" 2>/dev/null | wc -l)" -ge "$2" ]; }
# All that was acknowledged is there.
verify() {
    local i
    while read -r i; do
        dd if="$SIDE/data" bs=20000 count=5 skip="$i" status=none | cmp - "$OTHER/$1-$i" || fail "$1-$i is lost"
    done <"$SIDE/durable-$1"
}

# --- A client is killed. Others go on; what it made durable is there.
writer "$MNT" killed 150 &
killed=$!
writer "$OTHER" going 60 &
going=$!
eventually 30 durable killed 10 || fail "the first client does not get on"
kill -KILL "$first"
wait "$first" 2>/dev/null || true
! wait "$killed" || fail "a program on the killed mount noticed nothing"
wait "$going" || fail "another client's program got an error"
verify killed
verify going
umount --lazy "$MNT"
client "$MNT"
first=$CLIENT

# --- A client stands still. Others go on; when it goes on, so do its programs.
writer "$MNT" still 30 &
still=$!
eventually 30 durable still 3 || fail "the client does not get on"
kill -STOP "$first"
writer "$OTHER" meanwhile 20 || fail "another client cannot write while one stands still"
kill -CONT "$first"
wait "$still" || fail "a program on the mount that stood still got an error"
verify still
verify meanwhile

# --- Servers and forwarders stand still, are killed and started again, while fio checks what it reads.
fio --name=verified --directory="$OTHER" --size=24m --bs=16k --rw=randwrite --verify=crc32c --do_verify=1 --fsync=16 \
    --numjobs=2 --ioengine=psync --verify_fatal=1 --verify_state_save=0 --randseed=7 --output="$SIDE/fio" &
checking=$!
round=0
for node in server-1 forwarder-0 server-0 forwarder-1 server-2; do
    round=$((round + 1))
    writer "$MNT" "round-$round" 20 &
    writing=$!
    eventually 30 durable "round-$round" 2 || fail "the writer does not get on before $node is killed"
    if [ $((round % 2)) -eq 1 ]; then
        kill -STOP "$(pid_of $node)"
        sleep 0.5
    fi
    kill -KILL "$(pid_of $node)"
    eventually 5 is_gone "$(pid_of $node)" || fail "$node does not die"
    up
    wait "$writing" || fail "a writer got an error, though $node came back"
    verify "round-$round"
done
wait "$checking" || fail "fio: $(tail -n 20 "$SIDE/fio")"
cluster status faults

for place in "$MNT" "$OTHER"; do "$IOGATE" umount "$place"; done
wait "$first" "$second" || fail "a mount's process did not end well"
cluster down faults --purge
[ ! -e "$CLUSTER" ] || fail "the folder is still there"
