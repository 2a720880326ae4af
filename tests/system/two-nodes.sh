#!/usr/bin/env bash
# Two machines with Debian's systemd, in User-Mode Linux, and a network between them: the packages, and then what
# docs/how-to/server-client.md prints, with its services.
# limit: 150
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs_machines
needs python3 openssl
trap 'clean_up $?' EXIT

here=$(cd "$(dirname "$0")" && pwd)
export COMPRESS=none SOURCE_DATE_EPOCH=1700000000
built_small
package_for "$SIDE/packages"
UML_TIMEOUT=350 "$here/pages.py" --systemd "$SIDE/packages" --work "$SIDE/pages" "$here/../../docs/how-to/server-client.md" >"$SIDE/said" || fail "$(cat "$SIDE/said")"
cat "$SIDE/said"
