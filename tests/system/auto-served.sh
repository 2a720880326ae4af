#!/usr/bin/env bash
# A mount, servers and a cluster of which no scheduler is named, so that it is chosen: under load that verifies itself they are
# pinned and let go, each gate by itself, and their status says what is chosen.
# limit: 90
# variants: auto
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs fio jq
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
CLUSTER=$WORK/cluster
SERVER=
end() {
    local status=$?
    is_unmounted || umount --lazy "$MNT" || true
    [ -z "$SERVER" ] || kill -KILL "$SERVER" 2>/dev/null || true
    [ ! -e "$CLUSTER/cluster.toml" ] || "$IOGATE" cluster down chosen --dir "$CLUSTER" --purge || true
    clean_up "$status"
}
trap end EXIT

# says ADDRESS EXPORT CONDITION: of the status of the export's gate.
says() {
    "$IOGATE" status "$1" --json |
        jq -e --arg name "$2" ".exports[] | select(.name == \$name) | $3" >/dev/null
}
# Writes and reads back until FILE is there, and says so if anything is not as it was written.
verified_load() {
    until [ -e "$1" ]; do
        fio --name=load --directory="$MNT" --ioengine=psync --rw=randrw --bsrange=4k-64k --size=4m --numjobs=4 --verify=crc32c \
            --verify_fatal=1 --verify_backlog=16 --verify_state_save=0 --time_based --runtime=1 --group_reporting \
            --output="$SIDE/fio.out" || return 1
    done
}
looked() { says "$1" "$2" '.gate.choice | .windows > 0 or .held != null'; }
# to_and_fro ADDRESS EXPORT: pins the gate, and lets it go.
to_and_fro() {
    local _
    for _ in 1 2 3 4 5; do
        "$IOGATE" set "$1" --export "$2" scheduler=aioli contiguous_wait=0s || fail "$1 cannot be pinned"
        says "$1" "$2" '(.scheduler | startswith("aioli")) and (.gate | has("choice") | not)' || fail "$1: what was pinned is not in force"
        "$IOGATE" set "$1" --export "$2" scheduler=auto || fail "$1 cannot be let go"
        says "$1" "$2" '.gate.choice.scheduler | startswith("aioli")' || fail "$1 is not chosen from what it has"
    done
    refused any 'age_max=1s' "$IOGATE" set "$1" --export "$2" scheduler=auto age_max=1s
}

echo "== a server"
cat >"$WORK/server.toml" <<END
[[listen]]
at = "unix:$WORK/socket"
[[export]]
name = "chosen"
directory = "$SRC"
users = { squash = "none" }
[[export]]
name = "pinned"
directory = "$SIDE"
gate = { scheduler = "fifo" }
END
"$IOGATE" serve "$WORK/server.toml" >"$WORK/server.out" 2>"$WORK/server.log" &
SERVER=$!
eventually 10 grep -q '^ready$' "$WORK/server.out" || fail "the server does not start"
says "unix:$WORK/socket" chosen '.gate.choice | .scheduler == "fifo" and .switches == 0' || fail "it does not begin with fifo"
says "unix:$WORK/socket" pinned '.gate | has("choice") | not' || fail "a pinned scheduler is chosen"
"$IOGATE" mount --remote "unix:$WORK/socket" --export chosen "$MNT" || fail "not mounted"
verified_load "$SIDE/over" &
load=$!
eventually 30 looked "unix:$WORK/socket" chosen || fail "the server looks at no window"
mount_looked() { "$IOGATE" status "$MNT" --json | jq -e '.choice | .windows > 0 or .held != null' >/dev/null; }
eventually 30 mount_looked || fail "the mount looks at no window"
to_and_fro "unix:$WORK/socket" chosen
"$IOGATE" status "unix:$WORK/socket" >"$SIDE/status" || fail "status failed"
grep -q '^chosen  ' "$SIDE/status" || fail "the status does not say what is chosen"
touch "$SIDE/over"
wait "$load" || fail "fio found a difference, or an error"
"$IOGATE" umount "$MNT" || fail "it cannot be unmounted"
kill -TERM "$SERVER"
eventually 10 is_gone "$SERVER" || fail "the server goes on"
SERVER=

echo "== a cluster"
cat >"$WORK/cluster.toml" <<END
name = "chosen"
stripe = "64KiB"
[servers]
count = 2
[forwarders]
count = 1
END
"$IOGATE" cluster up "$WORK/cluster.toml" --dir "$CLUSTER" || fail "the cluster does not start"
entrance=$("$IOGATE" cluster status chosen --dir "$CLUSTER" --entrances)
says "$entrance" default '.gate.choice.held | contains("several targets")' || fail "a forwarder of several servers chooses"
"$IOGATE" mount --remote "$entrance" "$MNT" || fail "not mounted"
verified_load "$SIDE/over-2" &
load=$!
for server in 0 1; do
    eventually 30 looked "unix:$CLUSTER/server-$server.socket" objects || fail "server $server looks at no window"
    to_and_fro "unix:$CLUSTER/server-$server.socket" objects
done
touch "$SIDE/over-2"
wait "$load" || fail "fio found a difference, or an error"
"$IOGATE" umount "$MNT" || fail "it cannot be unmounted"
"$IOGATE" cluster down chosen --dir "$CLUSTER" --purge || fail "the cluster does not stop"
