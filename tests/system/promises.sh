#!/usr/bin/env bash
# docs/semantics.md is true: what it promises for each way to reach files is tried, from two nodes where there can be two.
# limit: 120
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs python3
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
[ "$(id -u)" -eq 0 ] || skip "several users take root"
here=$(cd "$(dirname "$0")" && pwd)
REPOSITORY=$(cd "$here/../.." && pwd)
CLUSTER=$WORK/cluster
chmod 711 "$WORK" "$SIDE"
umask 022

end_all() {
    local status=$? point
    for point in "$WORK"/at/*; do
        ! mountpoint --quiet "$point" || umount --lazy "$point" || true
    done
    [ ! -e "$CLUSTER/cluster.toml" ] || "$IOGATE" cluster down two-layer --purge --dir "$CLUSTER" || true
    clean_up "$status"
}
trap end_all EXIT

# at NAME SOURCE... [OPTION...]: mounts at a place of this name, the cache mode with --cache.
at() {
    local point=$WORK/at/$1
    shift
    mkdir -p "$point"
    "$IOGATE" mount "${cache[@]}" "$@" "$point"
}
cache=()
broken=0
promises() {
    local way=$1 one=$2 two=$3
    shift 3
    timeout 90 python3 "$here/promises.py" "$way" "$WORK/at/$one" "$WORK/at/$two" "$@" || broken=$((broken + 1))
}

echo "== a mount"
at local "$SRC"
of_servers=(collapsing_and_inserting_ranges_is_refused nobody_reaches_what_is_the_servers_own a_path_has_at_most_4096_bytes)
promises local local local "${of_servers[@]}"
cache=(--cache page)
at local-page "$SRC"
cache=()
promises local-page local-page local-page "${of_servers[@]}"

echo "== a server"
cat >"$WORK/server.toml" <<END
[[listen]]
at = "unix:$WORK/socket"
[[export]]
directory = "$SRC"
users = { squash = "none" }
END
"$IOGATE" serve "$WORK/server.toml" >"$WORK/server.out" &
eventually 10 grep -q '^ready$' "$WORK/server.out" || fail "the server does not start"
at one --remote "unix:$WORK/socket"
at two --remote "unix:$WORK/socket"
promises remote one two
cache=(--cache page)
at one-page --remote "unix:$WORK/socket"
at two-page --remote "unix:$WORK/socket"
cache=()
promises remote-page one-page two-page a_read_after_an_answered_write_sees_it_on_every_node

echo "== forwarders"
"$IOGATE" cluster up "$REPOSITORY/examples/two-layer.toml" --dir "$CLUSTER"
entrances=$("$IOGATE" cluster status two-layer --entrances --dir "$CLUSTER")
at first --remote "${entrances%%,*}"
at second --remote "${entrances##*,}"
chmod 755 "$WORK/at/first"
promises forwarded first second
for spread in file target; do
    at "$spread" --remote "$entrances" --spread "$spread"
    promises "$spread" "$spread" first
done

[ "$broken" -eq 0 ] || fail "$broken ways do not keep their promises"
