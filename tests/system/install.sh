#!/usr/bin/env bash
# Installing: into a prefix with a space, by a staging root, over a version whose server runs, with the disk full; C programs build by pkg-config against
# what is installed; nothing is left when it is removed.
# limit: 90
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs gcc pkg-config readelf
here=$(cd "$(dirname "$0")/../.." && pwd)
SERVER=
end() {
    local status=$?
    [ -z "$SERVER" ] || kill -KILL "$SERVER" 2>/dev/null || true
    umount --lazy "$SIDE/small" 2>/dev/null || true
    clean_up "$status"
}
trap end EXIT
put() { "$here/scripts/install" --built "${IOGATE%/*}"; }

export PREFIX="$SIDE/a place"
unset DESTDIR LIBDIR
put >"$SIDE/said" || fail "it cannot be installed: $(cat "$SIDE/said")"
grep -q 'is at .*a place' "$SIDE/said" || fail "it does not say where: $(cat "$SIDE/said")"
"$PREFIX/bin/iogate" --version | grep -q '^iogate ' || fail "the program does not run"
[ -s "$PREFIX/share/man/man1/iogate-mount.1" ] || fail "there is no man page of mount"
[ -s "$PREFIX/share/man/man3/iogate_gate.3" ] || fail "there is no man page of the library"
[ -s "$PREFIX/share/doc/iogate/docs/tutorial.md" ] || fail "there is no tutorial"
bash -n "$PREFIX/share/bash-completion/completions/iogate" || fail "the completions are no bash"
refused 2 'cannot name a path with a space' "$PREFIX/bin/iogate" run --policy backoff --target "$SRC" true
PREFIX=$SIDE/plain put >/dev/null || fail "it cannot be installed elsewhere"
"$SIDE/plain/bin/iogate" run --policy backoff --target "$SRC" true || fail "iogate run does not find its library"
PREFIX=$SIDE/plain "$here/scripts/install" --remove >/dev/null || fail "it cannot be removed there"

# A program against what is installed, as its page says.
cat >"$SIDE/program.c" <<'END'
#include <iogate_gate.h>
#include <stdio.h>
int main(void) {
    iogate_gate_config config = {.size = sizeof config, .scheduler = "sjf"};
    iogate_gate *gate;
    if (iogate_gate_new(&config, &gate) != 0) return fprintf(stderr, "%s\n", iogate_gate_error()), 1;
    return iogate_gate_free(gate);
}
END
export PKG_CONFIG_PATH="$PREFIX/lib/pkgconfig"
for name in iogate-turn iogate-gate iogate-agios; do
    pkg-config --exists --print-errors "$name" || fail "pkg-config does not know $name"
done
eval "gcc $SIDE/program.c $(pkg-config --cflags --libs iogate-gate) -o $SIDE/program" || fail "the program cannot be built"
LD_LIBRARY_PATH=$PREFIX/lib "$SIDE/program" || fail "the program fails"
readelf --dynamic "$SIDE/program" | grep -F '[libiogate_gate.so.1]' >/dev/null || fail "the program does not ask for its library by number"

# Over a version whose server runs: it goes on.
"$PREFIX/bin/iogate" serve --directory "$SRC" --listen "unix:$SIDE/server" >"$SIDE/server.out" 2>&1 &
SERVER=$!
eventually 10 grep -q '^ready$' "$SIDE/server.out" || fail "no server: $(cat "$SIDE/server.out")"
put >/dev/null || fail "it cannot be installed over a version that runs"
"$PREFIX/bin/iogate" status "unix:$SIDE/server" >/dev/null || fail "the server does not go on"
kill -TERM "$SERVER"
wait "$SERVER" || fail "the server did not end well"
SERVER=

# What is wrong is said in a line.
refused 1 'nothing is installed at' env PREFIX="$SIDE/elsewhere" "$here/scripts/install" --remove
refused 1 'begin with a slash' env PREFIX=relative "$here/scripts/install" --built "${IOGATE%/*}"
refused 1 'there is no .*/iogate: build first' "$here/scripts/install" --built "$SIDE"

# A full disk: nothing has changed, and nothing is left beside it.
if [ "$(id -u)" -eq 0 ]; then
    mkdir "$SIDE/small"
    mount -t tmpfs -o size=4m tmpfs "$SIDE/small"
    refused 1 'nothing was installed' env PREFIX="$SIDE/small" "$here/scripts/install" --built "${IOGATE%/*}"
    [ -z "$(find "$SIDE/small" -type f)" ] || fail "a full disk leaves files: $(find "$SIDE/small" -type f)"
fi

# A staging root, as packages need it; no path of it is in what is installed.
DESTDIR=$SIDE/root PREFIX=/usr put >/dev/null || fail "it cannot be installed into a staging root"
grep -qx '/usr/bin/iogate' "$SIDE/root/usr/share/iogate/installed" || fail "the list has other paths"
! grep -rqF "$SIDE/root" "$SIDE/root/usr/lib/pkgconfig" || fail "a pkg-config file has the staging root"
DESTDIR=$SIDE/root PREFIX=/usr "$here/scripts/install" --remove >/dev/null || fail "it cannot be removed"
"$here/scripts/install" --remove >/dev/null || fail "it cannot be removed"
for place in "$PREFIX" "$SIDE/plain" "$SIDE/root"; do
    [ -z "$(find "$place" ! -type d)" ] || fail "files are left: $(find "$place" ! -type d)"
done
