#!/usr/bin/env bash
# One policy over two mounts and a server: their caps are those of all together, a gate that is alone in wanting something has all of it, the
# coordinator may go and come back, files that differ are told apart, groups have their caps and shares over all gates, and certificates are shown over TCP.
# limit: 180
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs jq openssl python3
COORD=
SERVER=
end() {
    local status=$?
    for pid in $COORD $SERVER; do kill -KILL "$pid" 2>/dev/null || true; done
    [ ! -d "$WORK/mnt2" ] || umount --lazy "$WORK/mnt2" 2>/dev/null || true
    clean_up "$status"
}
trap end EXIT

# What a class has at all gates together: 8 MiB a second.
cat >"$SIDE/shared.toml" <<END
by = "app"
[others]
max = "8MiB/s"
[global]
coordinator = "unix:$SIDE/coord"
gates = 2
END
sed 's/8MiB/9MiB/' "$SIDE/shared.toml" >"$SIDE/other.toml"
printf 'by = "app"\n' >"$SIDE/own.toml"

refused 2 'own.toml: expected \[global\], found none' \
    "$IOGATE" coord serve --listen "unix:$SIDE/coord" --state "$SIDE/state" --policy "$SIDE/own.toml"
"$IOGATE" policy check "$SIDE/shared.toml" >"$SIDE/checked"
grep -q 'shared over 2 gates through unix:' "$SIDE/checked" || fail "the check does not say it: $(cat "$SIDE/checked")"

coordinator() {
    "$IOGATE" coord serve --listen "unix:$SIDE/coord" --state "$SIDE/state" --policy "$SIDE/shared.toml" >"$SIDE/coord.out" 2>"$SIDE/coord.err" &
    COORD=$!
    eventually 30 grep -q '^ready' "$SIDE/coord.out" || fail "no coordinator: $(cat "$SIDE/coord.err")"
}
coordinator
mkdir -p "$WORK/src2" "$WORK/mnt2"
"$IOGATE" mount "$WORK/src2" "$WORK/mnt2" --policy "$SIDE/shared.toml" || fail "no second mount"
mount_gate --policy "$SIDE/shared.toml"
has() { "$IOGATE" status "$1" | grep -q "^policy .*$2"; }
for place in "$MNT" "$WORK/mnt2"; do
    eventually 30 has "$place" 'shared through .*by a lease' || fail "no lease: $("$IOGATE" status "$place" | grep policy)"
done

# --- Both at once: 8 MiB each. At 8 MiB a second together 16 MiB take 2 s, without what may be ahead and what both have at first.
write() { IOGATE_APP=same dd if=/dev/zero of="$1/file" bs=128K count="$2" status=none; }
began=$(date +%s%3N)
write "$MNT" 64 &
one=$!
write "$WORK/mnt2" 64 || fail "no write to the second mount"
wait "$one" || fail "no write to the first mount"
took=$(($(date +%s%3N) - began))
[ "$took" -ge 1700 ] || fail "16 MiB through two mounts at 8 MiB/s together took $took ms"
"$IOGATE" coord status "unix:$SIDE/coord" >"$SIDE/status" || fail "no status of the coordinator"
grep -q 'shared by 2 gates' "$SIDE/status" || fail "the coordinator does not know both: $(cat "$SIDE/status")"

# --- One alone has all: its allotment is what the cap is, but for the share that is kept for a gate that comes.
write "$MNT" 400 &
one=$!
alone() {
    "$IOGATE" coord status "unix:$SIDE/coord" --json >"$SIDE/status.json"
    jq -e '.gates.named[0] | .used > 6000000 and .used < 8900000' "$SIDE/status.json" >/dev/null
}
eventually 30 alone || fail "one gate alone does not get the cap: $(jq -c .gates "$SIDE/status.json")"

# --- The coordinator is killed while it writes: it goes on with its part, and with a lease when there is one again.
kill -KILL "$COORD"
wait "$COORD" 2>/dev/null || true
eventually 30 has "$MNT" 'its part of the caps' || fail "no part: $("$IOGATE" status "$MNT" | grep policy)"
has "$MNT" 'the coordinator unix:.*expected .iogate coord serve. to listen there' ||
    fail "nothing says what is to be started: $("$IOGATE" status "$MNT" | grep policy)"
coordinator
eventually 30 has "$MNT" 'by a lease' || fail "no lease again: $("$IOGATE" status "$MNT" | grep policy)"
wait "$one" || fail "a write failed when the coordinator was away"

# --- A gate by another file is told so, in its status; the cap of a server is shared, too.
"$IOGATE" set "$WORK/mnt2" "policy=$SIDE/other.toml" || fail "the policy cannot be set"
eventually 30 has "$WORK/mnt2" 'give both the same file' || fail "no word of the other file: $("$IOGATE" status "$WORK/mnt2" | grep policy)"
"$IOGATE" set "$WORK/mnt2" policy=none || fail "the policy cannot be taken away"
mkdir -p "$WORK/served"
cat >"$SIDE/server.toml" <<END
[[listen]]
at = "unix:$SIDE/server"
[[export]]
directory = "$WORK/served"
gate = { policy = "$SIDE/shared.toml" }
END
"$IOGATE" serve "$SIDE/server.toml" >"$SIDE/server.out" 2>"$SIDE/server.err" &
SERVER=$!
eventually 30 grep -q '^ready' "$SIDE/server.out" || fail "no server: $(cat "$SIDE/server.err")"
known() { "$IOGATE" coord status "unix:$SIDE/coord" --json | jq -e --argjson n "$1" '.gates.gates == $n' >/dev/null; }
eventually 30 known 2 || fail "the coordinator does not know the server and the mount: $("$IOGATE" coord status "unix:$SIDE/coord")"

# --- Who leaves says so.
kill -TERM "$SERVER"
wait "$SERVER" || fail "the server did not end well"
SERVER=
eventually 30 known 1 || fail "a server that has left is still known"
umount "$WORK/mnt2" || fail "the second mount does not end"
unmount_gate
eventually 30 known 0 || fail "a mount that has left is still known"

# --- Groups: accounts, and jobs within them. The cap of one is that of its jobs at both mounts together, and a job has its share of it.
kill -TERM "$COORD"
wait "$COORD" || fail "the coordinator did not end well"
cat >"$SIDE/shared.toml" <<END
by = "account/job"
[group.physics]
max = "8MiB/s"
[group.physics.class.11]
weight = 3
[global]
coordinator = "unix:$SIDE/coord"
gates = 2
END
coordinator
"$IOGATE" mount "$WORK/src2" "$WORK/mnt2" --policy "$SIDE/shared.toml" || fail "no second mount with groups"
mount_gate --policy "$SIDE/shared.toml"
for place in "$MNT" "$WORK/mnt2"; do
    eventually 30 has "$place" 'shared through .*by a lease' || fail "no lease with groups: $("$IOGATE" status "$place" | grep policy)"
done
# charged ACCOUNT JOB MOUNT MIB
charged() { SLURM_JOB_ACCOUNT=$1 SLURM_JOB_ID=$2 dd if=/dev/zero of="$3/of-$2" bs=128K count=$(($4 * 8)) status=none; }
began=$(date +%s%3N)
charged physics 11 "$MNT" 24 &
one=$!
charged physics 12 "$WORK/mnt2" 24 &
other=$!
charged biology 13 "$WORK/mnt2" 24 || fail "no write of an account without a cap"
! is_gone "$one" || fail "an account without a cap is held to that of another one"
shares() {
    "$IOGATE" coord status "unix:$SIDE/coord" --json >"$SIDE/status.json"
    jq -e '.gates | .groups[0].gates == 2 and .groups[0].used < 8900000 and .groups[0].held <= 8388608
        and ([.named[] | select(.class == 11 or .class == 12)] | sort_by(.class) | map(.held) | .[0] > 2 * .[1] and .[1] > 1000000)' \
        "$SIDE/status.json" >/dev/null
}
eventually 30 shares || fail "jobs of one account have no shares of its cap: $(jq -c .gates "$SIDE/status.json")"
"$IOGATE" coord status "unix:$SIDE/coord" >"$SIDE/status"
grep -q '^group  *gates' "$SIDE/status" && grep -q '^class  *group' "$SIDE/status" || fail "the coordinator shows no groups: $(cat "$SIDE/status")"
wait "$one" && wait "$other" || fail "no write of the capped account"
# 48 MiB at 8 MiB a second take 6 s, without what may be ahead.
took=$(($(date +%s%3N) - began))
[ "$took" -ge 5500 ] || fail "48 MiB of an account at 8 MiB/s over two mounts took $took ms"
umount "$WORK/mnt2" || fail "the second mount does not end"
unmount_gate

# --- Over TCP, gates and coordinator show certificates. A gate that has a new one uses it, and is not told so.
kill -TERM "$COORD"
wait "$COORD" || fail "the coordinator did not end well"
COORD=
(
    umask 077
    new() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "$@" 2>/dev/null; }
    sign() { openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -days 1 -copy_extensions copy -out "$1.crt" 2>/dev/null; }
    cd "$SIDE"
    new -x509 -days 1 -subj "/CN=authority" -keyout ca.key -out ca.crt
    new -subj "/CN=coordinator" -addext "subjectAltName=IP:127.0.0.1" -addext "extendedKeyUsage=serverAuth" -keyout coord.key -out coord.csr
    for gate in root nobody-here; do new -subj "/CN=$gate" -addext "extendedKeyUsage=clientAuth" -keyout $gate.key -out $gate.csr && sign $gate; done
    sign coord
) || fail "no certificates"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$SIDE/shared.toml" <<END
by = "app"
[others]
max = "8MiB/s"
[global]
coordinator = "127.0.0.1:$port"
gates = 2
tls = { certificate = "$SIDE/gate.crt", key = "$SIDE/gate.key", servers = "$SIDE/ca.crt" }
END
"$IOGATE" coord serve --listen "127.0.0.1:$port" --state "$SIDE/state" --policy "$SIDE/shared.toml" \
    --auth tls --tls-certificate "$SIDE/coord.crt" --tls-key "$SIDE/coord.key" --tls-clients "$SIDE/ca.crt" >"$SIDE/coord.out" 2>"$SIDE/coord.err" &
COORD=$!
eventually 30 grep -q '^ready' "$SIDE/coord.out" || fail "no coordinator over TLS: $(cat "$SIDE/coord.err")"
refused 2 'global.tls: cannot read .*gate.crt' "$IOGATE" mount "$SRC" "$MNT" --policy "$SIDE/shared.toml"
show() { cp "$SIDE/$1.key" "$SIDE/gate.key" && cp "$SIDE/$1.crt" "$SIDE/gate.crt"; }
show nobody-here
mount_gate --policy "$SIDE/shared.toml"
eventually 30 has "$MNT" 'its part of the caps' || fail "who is nobody has a lease: $("$IOGATE" status "$MNT" | grep policy)"
show root
eventually 30 has "$MNT" 'shared through .*by a lease' || fail "no lease over TLS: $("$IOGATE" status "$MNT" | grep policy)"
write "$MNT" 8 || fail "no write under a policy that is shared over TLS"
unmount_gate
