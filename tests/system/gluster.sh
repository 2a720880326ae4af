#!/usr/bin/env bash
# GlusterFS for real: four bricks, with shards and with replicas. What `iogate layout` says agrees with where the bytes lie
# on the bricks, and a mount's gate counts each brick's share.
# limit: 120
# variants: twins server-window
# alone: its daemons give up on a busy machine
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

SHARD=$((4 << 20))
GLUSTER=$WORK/gluster  # settings, process numbers, logs
WINDOW=$WORK/window    # a mount that does not hide where shards are
SOCKETS=/var/run/gluster
HOST=$(hostname)

[ "$(id -u)" -eq 0 ] || skip "GlusterFS takes root"
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
command -v glusterd >/dev/null || skip "there is no glusterd (Debian's glusterfs-server)"
setfattr -n trusted.iogate -v test "$WORK" 2>/dev/null || skip "the file system has no trusted attributes for bricks"
ADDRESS=$(getent ahostsv4 "$HOST" | awk '{ print $1; exit }') || true
[ -n "$ADDRESS" ] || skip "the machine's name $HOST has no address"
! (exec 3<>"/dev/tcp/$ADDRESS/24007") 2>/dev/null || skip "a glusterd runs already: stop it for this test"

mkdir -p "$GLUSTER" "$WINDOW"
ls "$SOCKETS" >"$GLUSTER/sockets-before" 2>/dev/null || true

volume() { gluster --mode=script --glusterd-sock="$GLUSTER/glusterd.socket" volume "$@" >>"$GLUSTER/cli" 2>&1; }
# The processes of this test that are there.
pids() {
    local pid
    find "$GLUSTER" -name '*.pid' -exec cat {} + | while read -r pid; do
        ! grep -qF -- "$WORK" "/proc/$pid/cmdline" 2>/dev/null || echo "$pid"
    done
}
all_gone() { [ -z "$(pids)" ]; }

# Takes everything of GlusterFS down, whatever state it is in.
stop_gluster() {
    local pid socket
    [ -z "$GATE_PID" ] || kill -KILL "$GATE_PID" 2>/dev/null || true
    for point in "$MNT" "$SRC" "$WINDOW"; do
        ! findmnt --raw --noheadings --output TARGET | grep -xF -- "$point" >/dev/null || umount --lazy "$point" || true
    done
    for pid in $(pids); do kill -TERM "$pid" 2>/dev/null || true; done
    eventually 5 all_gone || for pid in $(pids); do kill -KILL "$pid" 2>/dev/null || true; done
    for socket in "$SOCKETS"/*.socket; do
        grep -qxF -- "$(basename "$socket")" "$GLUSTER/sockets-before" || rm -f "$socket"
    done
    mv /var/log/glusterfs/bricks/"$(tr / - <<<"${WORK#/}")"-*.log "$GLUSTER" # where it is cannot be set
}
trap 'status=$?; set +e; stop_gluster; (exit $status); clean_up' EXIT

cat >"$GLUSTER/glusterd.vol" <<END
volume management
    type mgmt/glusterd
    option working-directory $GLUSTER/work
    option run-directory $GLUSTER/run
    option glusterd-sockfile $GLUSTER/glusterd.socket
    option transport-type socket
    option transport.socket.listen-port 24007
    option transport.socket.bind-address $ADDRESS
    option ping-timeout 0
end-volume
END
mkdir -p "$GLUSTER/work" "$GLUSTER/run"
glusterd --volfile="$GLUSTER/glusterd.vol" --pid-file="$GLUSTER/glusterd.pid" --log-file="$GLUSTER/glusterd.log"
eventually 10 volume list || fail "glusterd does not answer: $(tail -n 5 "$GLUSTER/glusterd.log")"

# make_volume NAME WORDS...: a volume of the bricks NAME0 to NAME3.
make_volume() {
    local name=$1
    shift
    volume create "$name" "$@" "$HOST:$WORK/${name}0" "$HOST:$WORK/${name}1" "$HOST:$WORK/${name}2" \
        "$HOST:$WORK/${name}3" force || fail "no volume: $(tail -n 2 "$GLUSTER/cli")"
    # On a disk that is nearly full, GlusterFS would put files elsewhere than it says at first, and now and then never answer.
    volume set "$name" cluster.min-free-disk 0 && volume set "$name" storage.reserve 0 ||
        fail "no limits: $(tail -n 2 "$GLUSTER/cli")"
}
# mount_volume NAME PLACE OPTIONS...
mount_volume() {
    local name=$1 place=$2
    shift 2
    glusterfs --volfile-server="$HOST" --volfile-id="/$name" --pid-file="$GLUSTER/$name-$(basename "$place").pid" \
        --log-file="$GLUSTER/$name.log" "$@" "$place"
    eventually 10 mountpoint --quiet "$place" || fail "the volume $name cannot be mounted"
}
# Which brick of the volume b has shard number $2 of the file $1: what lies there, not what a link to it says.
brick_of() {
    local gfid name=$1
    gfid=$(getfattr --absolute-names --only-values -n glusterfs.gfid.string "$SRC/$name" | tr -d '\0')
    [ "$2" -eq 0 ] || name=.shard/$gfid.$2
    find "$WORK"/b?/"$name" ! -perm -1000 2>/dev/null || true
}
# Which target `iogate layout` says has the byte at offset $2 of the file $1.
target_of() {
    "$IOGATE" layout --json "$1" | jq --argjson at "$2" 'first(.[0].extents[]
        | select(.start <= $at and (.end == null or $at < .end))
        | .targets[(if .stripe_bytes then $at / .stripe_bytes | floor else 0 end) % (.targets | length)].target) // "none"'
}

make_volume b
volume set b features.shard on && volume set b features.shard-block-size 4MB && volume start b ||
    fail "the volume b does not start: $(tail -n 2 "$GLUSTER/cli")"
mount_volume b "$SRC"
mount_volume b "$WINDOW" --client-pid=-1 --read-only

shares() { "$IOGATE" status "$MNT" --json | jq -c '[.targets[] | {key: .name, value: .bytes}] | from_entries'; }

# --- The first file of the volume, written through a mount: its shards are found while it grows.
mount_gate
"$IOGATE" status "$MNT" | grep "each file's own, from GlusterFS" || fail "the mount does not ask for layouts"
head -c $((9 * SHARD)) /dev/urandom >"$SIDE/new"
dd if="$SIDE/new" of="$MNT/new" bs=1M status=none
# GlusterFS counts the size of a file with shards too large if its attributes are asked for while it grows
# (https://github.com/gluster/glusterfs/issues/2892): what was written must be there, and nothing must be missing.
cmp --bytes=$((9 * SHARD)) "$SIDE/new" "$SRC/new" || fail "something else was written"
bricks=$(for k in {0..8}; do brick_of new "$k"; done | sed "s|^$WORK/b\(.\)/.*|\1|" | sort -u | wc -l)
# The first MiB of each shard is written before it is known where it lies, and counts for target 0.
jq -e --argjson bricks "$bricks" 'length >= $bricks' <<<"$(shares)" >/dev/null ||
    fail "a new file on $bricks bricks was written in the shares $(shares)"
unmount_gate

# --- Each shard's bytes are on the brick that is said, and where there are none, nothing is said.
mkdir "$SRC/a folder"
files=(whole small sparse "a folder/name (1) of <two>" one two three)
head -c $((7 * SHARD + 123)) /dev/urandom >"$SRC/whole"
head -c 1000 /dev/urandom >"$SRC/small"
truncate -s $((6 * SHARD)) "$SRC/sparse"
head -c $SHARD /dev/urandom | dd of="$SRC/sparse" bs=$SHARD seek=3 conv=notrunc iflag=fullblock status=none
for name in "${files[@]:3}"; do head -c $((2 * SHARD)) /dev/urandom >"$SRC/$name"; done
sync -f "$SRC"
shards=0
for name in "${files[@]}"; do
    size=$(stat -c %s "$SRC/$name")
    for ((k = 0; k * SHARD < size; k++)); do
        said=$(target_of "$SRC/$name" $((k * SHARD + 500)))
        found=$(brick_of "$name" $k)
        if [ -z "$found" ]; then
            [ "$said" = '"none"' ] || fail "shard $k of $name is nowhere, and said to be on $said"
            continue
        fi
        [[ $found == "$WORK/b$said/"* ]] || fail "shard $k of $name is $found, and said to be on $said"
        # A shard that ends in a hole is shorter on its brick.
        dd if="$SRC/$name" bs=$SHARD skip=$k count=1 iflag=fullblock status=none >"$SIDE/shard"
        truncate -s "$(stat -c %s "$found")" "$SIDE/shard"
        cmp "$SIDE/shard" "$found" || fail "$found is not shard $k of $name"
        shards=$((shards + 1))
    done
done
[ "$shards" -ge 18 ] || fail "only $shards shards were compared"
"$IOGATE" layout "$SRC/whole" | tee "$SIDE/table"
grep -q "$HOST:$WORK/b[0-3]" "$SIDE/table" || fail "the table does not name bricks"

# --- A mount: each brick's share of what is read.
mount_gate
cmp "$SRC/whole" "$MNT/whole" || fail "the mount shows something else"
unmount_gate
mount_gate
dd if="$MNT/whole" of=/dev/null bs=1M status=none
size=$(stat -c %s "$SRC/whole")
expected='{}'
for ((k = 0; k * SHARD < size; k++)); do
    found=$(brick_of whole $k)
    number=${found#"$WORK/b"}
    bytes=$((size - k * SHARD < SHARD ? 1048576 : SHARD)) # the last read asks for more than there is
    expected=$(jq -c --arg target "${number%%/*}" --argjson bytes $bytes '.[$target] += $bytes' <<<"$expected")
done
jq -e --argjson expected "$expected" '. as $got | all($expected | keys[]; $got[.] == $expected[.]
    or $got[.] == $expected[.] + 1048576)' <<<"$(shares)" || fail "expected the shares $expected, got $(shares)"
unmount_gate

# --- Without the second mount, shards are not found: said once, and everything works.
umount "$WINDOW"
refused 1 'hide where shards are.*client-pid=-1' "$IOGATE" layout "$SRC/whole"
: >"$WORK/mount.log"
mount_gate
cmp "$SRC/whole" "$MNT/whole" || fail "the mount shows something else"
cmp "$SRC/one" "$MNT/one" || fail "the mount shows something else"
unmount_gate
[ "$(grep -c 'WARN.*hide where shards are' "$WORK/mount.log")" -eq 1 ] || fail "expected one warning in the mount's log"
umount "$SRC"

# --- Replicas: the two bricks that have a file are one target.
make_volume r replica 2
volume start r || fail "the volume r does not start: $(tail -n 2 "$GLUSTER/cli")"
mount_volume r "$SRC"
for name in one two three four; do
    echo "$name" >"$SRC/$name"
    "$IOGATE" layout --json "$SRC/$name" | jq -r '.[0].extents[0].targets[0].name' | tr , '\n' >"$SIDE/said"
    find "$WORK"/r?/"$name" ! -perm -1000 -printf "$HOST:%h\n" | sort >"$SIDE/found"
    diff "$SIDE/said" "$SIDE/found" || fail "the bricks of $name are others than said"
    [ "$(wc -l <"$SIDE/found")" -eq 2 ] || fail "$name has not two replicas"
done
umount "$SRC"
