#!/usr/bin/env bash
# A cluster whose nodes are in network namespaces, over links of limited bandwidth. Links go down for some seconds: whoever is
# behind them waits, the others go on, and nothing is lost. In the end nothing is left of it.
# limit: 120
# variants: fifo
# alone: leases and time limits run while links are down
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

CLUSTER=$WORK/cluster
NAME=it$$
cluster() { "$IOGATE" cluster "$@" --dir "$CLUSTER"; }
end_cluster() {
    local status=$?
    is_unmounted || umount --lazy "$MNT" || true
    [ ! -e "$CLUSTER/cluster.toml" ] || cluster down "$NAME" --purge || true
    clean_up "$status"
}
trap end_cluster EXIT

[ "$(id -u)" -eq 0 ] || skip "network namespaces take root"
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
command -v tc >/dev/null || skip "there is no tc (Debian's iproute2)"
ip netns add "$NAME" 2>/dev/null || skip "network namespaces cannot be made here"
ip netns del "$NAME"
! ip -br address | grep ' 10\.77\.0\.' >/dev/null || skip "the addresses 10.77.0.0/24 are in use"

links() { ip -br link | awk '{ print $1 }' | sort; }
links >"$SIDE/links-before"
pgrep -f "serve $CLUSTER/" && fail "there is a node already"
cat >"$WORK/cluster.toml" <<END
name = "$NAME"
transport = "tcp"
servers = { count = 2 }
forwarders = { count = 2 }
network = { bandwidth = "400Mbit/s" }
END
cluster up "$WORK/cluster.toml"
[ "$(ip netns | grep -c "^iogate-$NAME-")" -eq 4 ] || fail "not each node has a namespace: $(ip netns)"
entrances=$(cluster status "$NAME" --entrances)
keys=(--tls-authorities "$CLUSTER/ca.crt" --tls-certificate "$CLUSTER/node.crt" --tls-key "$CLUSTER/node.key")
"$IOGATE" mount --remote "$entrances" "${keys[@]}" "$MNT"
is_mounted || fail "not mounted"

# --- What passes a link takes as long as the link needs: 400 Mbit/s are 50 MB/s.
head -c 20000000 /dev/urandom >"$SIDE/piece"
began=$(date +%s%N)
dd if="$SIDE/piece" of="$MNT/measured" bs=1M conv=fsync status=none
[ $((($(date +%s%N) - began) / 1000000)) -ge 350 ] || fail "20 MB passed a link of 50 MB/s in less than 0.35 s"
cmp "$SIDE/piece" "$MNT/measured"

# --- Links of a data server, then of a forwarder, are down for some seconds.
writer() {
    local i
    for i in $(seq 60); do
        dd if="$SIDE/piece" of="$MNT/$i" bs=256K count=4 skip="$i" conv=fsync status=none || return 1
        echo "$i" >>"$SIDE/done"
    done
}
written() { [ "$(cat "$SIDE/done" 2>/dev/null | wc -l)" -ge "$1" ]; }
writer &
writing=$!
at=5
for node in server-1 forwarder-0 forwarder-1; do
    eventually 40 written $at || fail "the writer does not get on"
    ip -n "iogate-$NAME-$node" link set eth0 down
    sleep 3
    ip -n "iogate-$NAME-$node" link set eth0 up
    at=$(($(wc -l <"$SIDE/done") + 5))
done
wait "$writing" || fail "the writer got an error, though all links came back"
for i in $(seq 60); do
    dd if="$SIDE/piece" bs=256K count=4 skip="$i" status=none | cmp - "$MNT/$i" || fail "file $i is not whole"
done
cluster status "$NAME"
"$IOGATE" umount "$MNT"

# --- Nothing is left.
cluster down "$NAME" --purge
[ ! -e "$CLUSTER" ] || fail "the folder is still there"
! ip netns | grep "iogate-$NAME-" || fail "namespaces are left"
links | diff "$SIDE/links-before" - || fail "links are left"
! pgrep -f "serve $CLUSTER/" || fail "processes are left"
