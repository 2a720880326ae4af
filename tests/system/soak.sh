#!/usr/bin/env bash
# The soak test, for a short while and always with the same seed: appends, truncations, replacements, overwrites and attacks over two layers
# of servers that are killed and stopped; what was acknowledged is there. What a longer one finds is in its folder below target/soak.
# limit: 120
# variants: fifo
# alone: what is stopped for seconds must not be what is merely slow
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

[ -c /dev/fuse ] || skip "there is no /dev/fuse"
"$(dirname "$0")/../soak/run" 15 --seed 25
