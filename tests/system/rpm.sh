#!/usr/bin/env bash
# Packages for RPM: the same bytes twice; installed into a root of their own, upgraded, and erased; what an administrator has changed stays.
# limit: 120
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs rpm rpmbuild cc ar strip
[ "$(id -u)" -eq 0 ] || skip "installing packages takes root"
trap 'clean_up $?' EXIT

packages=('iogate-[0-9]*.rpm' 'iogate-libs-[0-9]*.rpm' 'iogate-devel-[0-9]*.rpm')
# With an MPI.
if "$(dirname "$0")/../../mpi/build" >/dev/null 2>&1; then packages+=('iogate-mpi-[0-9]*.rpm'); fi
packaged_twice rpm "${packages[@]}"
packaged rpm next 2
# But for what the stand-ins for static libraries are the cause of.
if command -v rpmlint >/dev/null; then
    rpmlint --config "$(dirname "$0")/../../packaging/rpm/rpmlint.toml" "$SIDE/once"/*.rpm >"$SIDE/said" 2>&1 || true
    grep -q 'packages and .* checked' "$SIDE/said" || fail "rpmlint: $(cat "$SIDE/said")"
    ! grep -E ': [EW]: ' "$SIDE/said" | grep -vE 'static-library-without-symtab|shared-library-without-dependency-information|lto-no-text-in-archive' ||
        fail "rpmlint has found something"
fi

root=$SIDE/root
mkdir "$root"
# Nothing else is in this root, neither what packages need nor a shell for their scripts.
in_root() { rpm --root="$root" --nodeps --noscripts --nosignature "$@" >"$SIDE/said" 2>&1 || fail "rpm $1: $(tail -n 5 "$SIDE/said")"; }
in_root --install "$SIDE/once"/*.rpm
"$root/usr/bin/iogate" --version | grep -q '^iogate ' || fail "the program does not run"
"$root/usr/bin/iogate" run --policy backoff --target "$SRC" true || fail "iogate run does not find its library"
mpi_is_found "$root" usr/lib64
rpm --root="$root" --verify --all --nodeps >"$SIDE/said" || fail "what is installed is not what was packaged: $(cat "$SIDE/said")"
echo '# mine' >>"$root/etc/iogate/coord.conf"
in_root --upgrade "$SIDE/next"/*.rpm
rpm --root="$root" --query iogate | grep -q -- '-2\.' || fail "it is not upgraded"
grep -qx '# mine' "$root/etc/iogate/coord.conf" || fail "an upgrade takes the administrator's configuration"
mapfile -t names < <(rpm --root="$root" --query --all)
in_root --erase "${names[@]}"
find "$root" -type f ! -path '*/var/lib/rpm/*' ! -path '*/.rpmdb/*' >"$SIDE/left"
[ "$(cat "$SIDE/left")" = "$root/etc/iogate/coord.conf.rpmsave" ] || fail "erased, there are left: $(cat "$SIDE/left")"
