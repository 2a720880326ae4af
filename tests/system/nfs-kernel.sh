#!/usr/bin/env bash
# A directory by NFS, through the Linux kernel's own client (in User-Mode Linux): git and a compile, random operations against a copy in
# memory, users, and a server that is killed while programs write.
# limit: 200
# variants: aioli
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/system/nfs-kernel.bash
. "$(dirname "$0")/nfs-kernel.bash"

needs linux.uml mount.nfs insmod ip git make cc
[ "$(id -u)" -eq 0 ] || skip "a network of its own takes root"
needs_linux_as_program
[ -c /dev/net/tun ] || skip "there is no /dev/net/tun"
here=$(dirname "$0")
OUT=$WORK/out
client=
end() {
    local status=$?
    : >"$OUT/stop"
    if [ -n "$client" ]; then
        kill -TERM "$client" 2>/dev/null || true
        wait "$client" || true
    fi
    clean_up "$status"
}
trap end EXIT
mkdir "$OUT"
chmod 777 "$SRC"
cc -O1 -o "$OUT/fsx" "$here/fsx.c"

make_origin "$OUT/origin"
write_rounds "$OUT/rounds"

# What runs on the mount.
cat >"$OUT/work" <<'END'
set -eu
. /mnt/out/rounds
git config --global safe.directory '*'
cp /mnt/out/fsx /tmp/fsx

# --- Reads, writes, truncations and mappings; what is written goes to the server within moments, beside reads.
for how in dirty_writeback_centisecs dirty_expire_centisecs; do
    cat /proc/sys/vm/$how >/tmp/$how
    echo 1 >/proc/sys/vm/$how
done
/tmp/fsx fsx-file 1500 7 >/dev/null
for how in dirty_writeback_centisecs dirty_expire_centisecs; do cat /tmp/$how >/proc/sys/vm/$how; done

# --- git and a compile.
compile

# --- Names.
mkdir many
for i in $(seq 400); do : >many/$i; done
[ "$(ls many | wc -l)" -eq 400 ] || fail "names are missing in a listing"
rm -r many
echo data >gone
exec 3<gone
rm gone
[ "$(cat <&3)" = data ] || fail "a removed file that is open"
exec 3<&-
mkfifo fifo
ln fsx-file fsx-link
[ "$(stat -c %h fsx-file)" = 2 ] || fail "links are not counted"
touch -d @1000000000 fsx-link
[ "$(stat -c %Y fsx-file)" = 1000000000 ] || fail "a time is not set"
[ "$(df --output=fstype . | tail -n 1)" = nfs ] || fail "this is no mount of NFS"

# --- Locks: one program sees those of another here. Who wants them between clients is told at once, where nothing here could keep them.
(
    flock -n 9 || fail "a lock that nobody has"
    if flock -n locked true; then fail "a lock that another program has"; fi
) 9>locked
flock -n locked true || fail "a lock that was let go"
mkdir /tmp/locks
ports=vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp
if mount -t nfs -o "$ports" "$(findmnt --noheadings --output SOURCE .)" /tmp/locks 2>/tmp/said; then fail "a mount without nolock"; fi
grep -q 'rpc.statd is not running' /tmp/said || fail "a mount without nolock says: $(cat /tmp/said)"

# --- Users.
users clone

# --- The server is killed meanwhile, by who waits for the notes.
for i in $(seq 24); do
    head -c 1000000 /dev/urandom >/tmp/block
    cat /tmp/block >>/tmp/all
    dd if=/tmp/block of=through bs=50000 oflag=append conv=notrunc,fsync status=none || fail "a write through a kill"
    echo "$i" >/mnt/out/progress
done
cmp /tmp/all through || fail "what was written through a kill is not there"
sha256sum </tmp/all >/mnt/out/sum
END

write_server "$OUT/server"
UML_TIMEOUT=500 "$here/kernel-nfs-client" "bash '$OUT/server'" -- "$SRC" "$NFS_OPTIONS" "$OUT" bash /mnt/out/work &
client=$!
progress() {
    local block
    block=$(cat "$OUT/progress" 2>/dev/null) || true
    is_gone "$client" || [ "${block:-0}" -ge "$1" ]
}
for block in 4 12; do
    eventually 200 progress "$block" || fail "the client does not get on"
    is_gone "$client" || kill -KILL "$(cat "$OUT/server.pid")"
done
status=0
wait "$client" || status=$?
client=
: >"$OUT/stop"
case $status in
0) ;;
120 | 121) cat "$OUT/server.log" && skip "Linux does not run here as a program, or cannot mount (status $status)" ;;
*) fail "on the mount (status $status): $(tail -n 5 "$OUT/stderr")" ;;
esac
[ "$(grep -c '^ready$' "$OUT/server.log")" -eq 3 ] || fail "the server was not killed twice"
[ "$(sha256sum <"$SRC/through")" = "$(cat "$OUT/sum")" ] || fail "the server has other data than the client"
! grep "panicked\|defect" "$OUT/server.log" || fail "the server's log says more than it should"
