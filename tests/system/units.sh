#!/usr/bin/env bash
# Units of systemd: what systemd says of them; each one's command line with the example of its configuration, until it says READY=1, and STOPPING=1
# when it ends; a mount that was killed is taken off.
# limit: 120
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs python3
here=$(cd "$(dirname "$0")/../.." && pwd)
trap 'clean_up $?' EXIT
export PREFIX="$SIDE/a place"
unset DESTDIR LIBDIR
"$here/scripts/install" --built "${IOGATE%/*}" >/dev/null || fail "it cannot be installed"
units=$PREFIX/lib/systemd/system
etc=$SIDE/etc
cp -R "$PREFIX/share/iogate/config" "$etc"

# A unit whose condition fails counts as started, and what requires it goes on.
! grep -H '^Condition' "$units"/* || fail "a unit is skipped in silence where something lacks"

# The examples, with this test's places in place of theirs.
sed -i "s|/srv/data|$SRC|; s|/mnt/gate|$MNT|; s|/run/iogate/|$SIDE/run/|; s|/var/lib/iogate/|$SIDE/state/|" "$etc"/*.conf "$etc"/*/*
sed -i "s|^OPTIONS=.*|OPTIONS=--listen 127.0.0.1:0 --any-port --control unix:$SIDE/run/nfs|" "$etc/nfs/example.conf"
mkdir -p "$SIDE/run/serve/example" "$SIDE/run/coord"
# tried UNIT INSTANCE [--kill] -- COMMAND...
tried() {
    python3 "$here/tests/system/units.py" "$units/$1" "$2" "$etc" "${@:3}" >"$SIDE/said" 2>&1 || fail "$1 $2: $(cat "$SIDE/said")"
}
echo content >"$SRC/file"
tried iogate-serve@.service example -- "$IOGATE" status "unix:$SIDE/run/serve/example/socket"
tried iogate-nfs@.service example -- "$IOGATE" status "unix:$SIDE/run/nfs"
tried iogate-coord.service '' -- "$IOGATE" coord status "unix:$SIDE/run/coord/socket"
if [ -c /dev/fuse ]; then
    tried iogate-mount@.service example -- grep -qx content "$MNT/file"
    is_unmounted || fail "the mount's unit leaves the mount"
    tried iogate-mount@.service example --kill -- grep -qx content "$MNT/file"
    is_unmounted || fail "after a kill, the mount's unit leaves the mount"
    # A source with a space, and options.
    mkdir "$SIDE/my data"
    echo other >"$SIDE/my data/file"
    printf '%s\n' "SOURCE=\"'$SIDE/my data'\"" "MOUNTPOINT=$MNT" 'OPTIONS=--scheduler sjf --read-only' >"$etc/mount/other.conf"
    tried iogate-mount@.service other -- grep -qx other "$MNT/file"
fi
# What is wrong is said, and no READY=1 comes.
echo 'no = "such key"' >"$etc/serve/wrong.toml"
! python3 "$here/tests/system/units.py" "$units/iogate-serve@.service" wrong "$etc" -- true >"$SIDE/said" 2>&1 || fail "a wrong file serves"
grep -q 'unknown field' "$SIDE/said" || fail "it does not say what is wrong: $(cat "$SIDE/said")"

command -v systemd-analyze >/dev/null || skip "the units work; there is no systemd-analyze to look at them"
mkdir "$SIDE/looked-at"
for unit in "$units"/*; do
    name=${unit##*/}
    cp "$unit" "$SIDE/looked-at/${name/@/@example}"
done
rm -rf "$SIDE/user" && mkdir -p "$SIDE/user/etc"
(cd "$SIDE/looked-at" && systemd-analyze verify --man=no ./*) >"$SIDE/said" 2>&1 || fail "systemd-analyze verify: $(cat "$SIDE/said")"
! grep -F iogate "$SIDE/said" || fail "systemd-analyze verify: $(cat "$SIDE/said")"
# How exposed a service may be, of 100: a mount must be seen by all, and serves in everybody's name.
if systemd-analyze --help | grep -q -- --offline; then
    while read -r name most; do
        systemd-analyze security --offline=yes --threshold="$most" "$SIDE/looked-at/$name" >"$SIDE/said" 2>&1 ||
            fail "systemd-analyze security $name: $(tail -n 3 "$SIDE/said")"
    done <<<'iogate-mount@example.service 60
iogate-serve@example.service 45
iogate-nfs@example.service 45
iogate-coord.service 20'
fi
systemd-sysusers --root="$SIDE/user" "$PREFIX/lib/sysusers.d/iogate.conf" >"$SIDE/said" 2>&1 || fail "sysusers: $(cat "$SIDE/said")"
grep -q '^iogate:' "$SIDE/user/etc/passwd" || fail "there is no user: $(cat "$SIDE/user/etc/passwd")"
if [ "$(id -u)" -eq 0 ]; then
    systemd-tmpfiles --root="$SIDE/user" --create "$PREFIX/lib/tmpfiles.d/iogate.conf" || fail "tmpfiles"
    [ -d "$SIDE/user/run/iogate" ] || fail "tmpfiles makes no /run/iogate"
fi
