#!/usr/bin/env bash
# Services of the packages under Debian's systemd, in User-Mode Linux: installed, enabled as pages print it, used, killed, stopped, over a
# shutdown and the next boot, upgraded while they run, removed and purged.
# limit: 180
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs_machines
needs mount.nfs jq
trap 'clean_up $?' EXIT

here=$(cd "$(dirname "$0")" && pwd)
machine=$SIDE/machine
mkdir "$machine"
export COMPRESS=none SOURCE_DATE_EPOCH=1700000000
built_small
package_for "$machine/once"
# The next version, with the same files.
dpkg-deb --raw-extract "$machine/once"/*.deb "$SIDE/next"
sed -i 's/^Version: .*-1$/&.next/' "$SIDE/next/DEBIAN/control"
mkdir "$machine/next"
dpkg-deb --root-owner-group -Znone --build "$SIDE/next" "$machine/next" >/dev/null
cp "$here/services.bash" "$machine/"
# What pages say of services, as an administrator would copy it.
for page in docs/install.md docs/how-to/disk-server.md; do
    awk '/^```sh no-run it takes systemd/ { on = 1; next } /^```/ { on = 0 } on' "$here/../../$page" >"$machine/$(basename "$page" .md).page"
    [ -s "$machine/$(basename "$page" .md).page" ] || fail "$page has no commands for systemd"
done

for boot in first again; do
    echo "bash /out/services.bash $boot" >"$machine/script"
    status=0
    began=$SECONDS
    UML_TIMEOUT=300 "$here/systemd-machine" "$machine" node script || status=$?
    cat "$machine/stdout" "$machine/stderr"
    if [ "$status" -ne 0 ]; then
        tail -n 30 "$machine/console"
        fail "the machine's boot '$boot' ended with $status: $(grep -h '^failed: ' "$machine/stdout" | tail -n 1)"
    fi
    ! grep -E 'timed out|Failed unmounting|still around after' "$machine/console" || fail "the machine was not shut down in order"
    echo "boot '$boot' took $((SECONDS - began)) s"
done
