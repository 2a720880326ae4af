#!/usr/bin/env bash
# Debian packages: the same bytes twice; installed into a root of their own, upgraded while the server runs, with the disk full and with room, removed and
# purged; what an administrator has changed stays. The programs are those that are built anyway; scripts/package-test does it all with optimised ones and
# Debian around them.
# limit: 120
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs dpkg dpkg-deb dpkg-shlibdeps cc ar strip systemd-sysusers
[ "$(id -u)" -eq 0 ] || skip "installing packages takes root"
SERVER=
end() {
    local status=$?
    [ -z "$SERVER" ] || kill -KILL "$SERVER" 2>/dev/null || true
    umount --lazy "$SIDE/root" 2>/dev/null || true
    clean_up "$status"
}
trap end EXIT

packages=('iogate_*.deb' 'libiogate1_*.deb' 'libiogate-dev_*.deb')
# With Slurm's headers.
if "$(dirname "$0")/../../slurm/build" >/dev/null 2>&1; then packages+=('iogate-slurm_*.deb'); fi
# With an MPI.
if "$(dirname "$0")/../../mpi/build" >/dev/null 2>&1; then packages+=('iogate-mpi_*.deb'); fi
packaged_twice deb "${packages[@]}"
packaged deb next 2

# Each file is in one package, and none is writable by others or another user's than root.
for package in "$SIDE/once"/*; do dpkg-deb --contents "$package"; done >"$SIDE/contents"
! awk '$2 != "root/root" || $1 ~ /^[^l]....w|^[^l].......w/' "$SIDE/contents" | grep . || fail "owners or modes are wrong"
! awk '$1 !~ /^d/ { print $6 }' "$SIDE/contents" | sort | uniq -d | grep . || fail "files are in two packages"

root=$SIDE/root
mkdir "$root"
mount -t tmpfs -o size=1g tmpfs "$root"
mkdir -p "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/info" "$root/etc"
touch "$root/var/lib/dpkg/status" "$root/var/lib/dpkg/available"
# Nothing of Debian is in this root: what packages need is this machine's, and so are the programs that their scripts call.
dpkg_there() { dpkg --root="$root" --log=/dev/null --force-depends --force-script-chrootless --force-confold "$@" >"$SIDE/said" 2>&1; }
in_root() { dpkg_there "$@" || fail "dpkg $1: $(tail -n 5 "$SIDE/said")"; }
in_root --install "$SIDE/once"/*.deb
"$root/usr/bin/iogate" --version | grep -q '^iogate ' || fail "the program does not run"
"$root/usr/bin/iogate" run --policy backoff --target "$SRC" true || fail "iogate run does not find its library"
mpi_is_found "$root" "usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)"
grep -q '^iogate:' "$root/etc/passwd" || fail "there is no user for the coordinator"
[ -s "$root/usr/lib/systemd/system/iogate-mount@.service" ] || fail "there is no unit of mounts"
grep -q '^ExecStart=/usr/bin/iogate coord serve ' "$root/usr/lib/systemd/system/iogate-coord.service" || fail "the unit has another program"
for name in gate agios; do
    [ "$(readlink "$root/usr/lib/"*"/libiogate_$name.so")" = "libiogate_$name.so.1" ] || fail "linkers do not find libiogate_$name"
    [ -s "$(echo "$root/usr/lib/"*"/libiogate_$name.so.1")" ] || fail "there is no libiogate_$name.so.1"
done
zcat "$root/usr/share/man/man1/iogate-mount.1.gz" | grep -q iogate || fail "there is no man page"

# Over a version whose server runs.
"$root/usr/bin/iogate" serve --directory "$SRC" --listen "unix:$SIDE/server" >"$SIDE/server.out" 2>&1 &
SERVER=$!
eventually 10 grep -q '^ready$' "$SIDE/server.out" || fail "no server: $(cat "$SIDE/server.out")"
echo '# mine' >>"$root/etc/iogate/coord.conf"
echo 'mine' >"$root/etc/iogate/mount/mine.conf"
# First with a full disk: what is there stays, and goes on.
sha256sum "$root/usr/bin/iogate" "$root/usr/lib/iogate"/* >"$SIDE/before"
mount -o "remount,size=$(($(du -sk "$root" | cut -f1) + 2048))k" "$root"
! dpkg_there --install "$SIDE/next"/iogate_*.deb || fail "there was room for an upgrade"
grep -q 'No space left on device' "$SIDE/said" || fail "the disk is not full: $(tail -n 5 "$SIDE/said")"
sha256sum --quiet --check "$SIDE/before" || fail "an upgrade that fails leaves something else than there was"
"$root/usr/bin/iogate" status "unix:$SIDE/server" >/dev/null || fail "the server does not go on over an upgrade that fails"
mount -o remount,size=1g "$root"
dpkg-query --admindir="$root/var/lib/dpkg" --show --showformat='${Status} ${Version}' iogate | grep -q '^install ok installed .*-1$' || fail "the package of before is not there any more"
in_root --install "$SIDE/next"/*.deb
dpkg-query --admindir="$root/var/lib/dpkg" --show iogate | grep -q -- '-2$' || fail "it is not upgraded"
"$root/usr/bin/iogate" status "unix:$SIDE/server" >/dev/null || fail "the server does not go on"
grep -qx '# mine' "$root/etc/iogate/coord.conf" || fail "an upgrade takes the administrator's configuration"
kill -TERM "$SERVER"
wait "$SERVER" || fail "the server did not end well"
SERVER=

mapfile -t names < <(for package in "$SIDE/once"/*; do dpkg-deb --field "$package" Package; done)
in_root --remove "${names[@]}"
[ ! -e "$root/usr/bin/iogate" ] || fail "the program is there when it is removed"
grep -qx '# mine' "$root/etc/iogate/coord.conf" || fail "removing takes the configuration"
# What a cluster keeps is people's; what the services keep goes.
state=$root/var/lib/iogate
mkdir -p "$state/clusters/tiny/server0" "$state/coord" "$state/profiles" "$state/nfs"
touch "$state/clusters/tiny/server0/data" "$state/coord/journal" "$state/profiles/1-2" "$state/nfs/key"
in_root --purge "${names[@]}"
[ "$(cd "$state" && find . -type f | sort | xargs)" = './clusters/tiny/server0/data ./nfs/key' ] || fail "a purge leaves of the state: $(find "$state" -type f)"
rm -r "$state"
find "$root" -type f ! -path '*/var/lib/dpkg/*' ! -path '*/etc/*shadow*' ! -path '*/etc/passwd*' ! -path '*/etc/group*' ! -path '*/etc/.pwd.lock' >"$SIDE/left"
[ "$(cat "$SIDE/left")" = "$root/etc/iogate/mount/mine.conf" ] || fail "of a purge are left: $(cat "$SIDE/left")"
