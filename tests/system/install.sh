#!/usr/bin/env bash
# Installing: into a prefix with a space, by a staging root, over a version whose server and mount run, on a disk that is full in the middle of it, without
# Rust; C programs build by pkg-config against what is installed; nothing is left when it is removed.
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
grep -q '^.TH IOGATE-MOUNT 1 "20..-..-.." "iogate ' "$PREFIX/share/man/man1/iogate-mount.1" || fail "there is no man page of mount, or it has another title"
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
if [ -c /dev/fuse ]; then
    IOGATE=$PREFIX/bin/iogate mount_gate
    exec 8>"$MNT/open"
    put >/dev/null || fail "it cannot be installed over a version that has a mount"
    echo before and after >&8
    exec 8>&-
    grep -qx 'before and after' "$SRC/open" || fail "what was open in the mount is lost"
    "$PREFIX/bin/iogate" status "$MNT" >/dev/null || fail "the mount does not go on"
    unmount_gate
fi
kill -TERM "$SERVER"
wait "$SERVER" || fail "the server did not end well"
SERVER=

# What is wrong is said in a line.
refused 1 'nothing is installed at' env PREFIX="$SIDE/elsewhere" "$here/scripts/install" --remove
refused 1 'begin with a slash' env PREFIX=relative "$here/scripts/install" --built "${IOGATE%/*}"
refused 1 'there is no .*/iogate: build first' "$here/scripts/install" --built "$SIDE"
for mark in '&' '|' '%' '\' '$HOME' "'" '"' '#' $'\t' $'\n'; do
    refused 1 'without marks that mean something .* choose a plainer path' env PREFIX="$SIDE/a${mark}b" "$here/scripts/install" --built "${IOGATE%/*}"
    [ "$(wc -l <"$SIDE/refused")" -eq 1 ] || fail "it says more than one line of ${mark@Q}"
done
refused 1 'cannot be made: nothing was installed' env PREFIX="$SIDE/program.c/below" "$here/scripts/install" --built "${IOGATE%/*}"

# A machine without Rust, without one that is new enough, without a C compiler: what to install is said; what is built already is installed.
mkdir -p "$SIDE/tree" "$SIDE/tools" "$SIDE/rust"
for part in "$here"/*; do [ "${part##*/}" = target ] || ln -s "$part" "$SIDE/tree/"; done
for tool in bash sh env make sed cut sort head printf dirname mktemp rm; do ln -s "$(command -v "$tool")" "$SIDE/tools/$tool"; done
with_tools() { env PATH="$SIDE/tools$1" make --no-print-directory -C "$SIDE/tree" "${@:2}"; }
export -f with_tools
export SIDE
for target in install release deb; do
    refused 2 'there is no cargo: install Rust [0-9.]+ or later by rustup.* or build as a user who has' bash -c 'with_tools "" "$1"' bash "$target"
done
printf '#!/bin/sh\necho "rustc 1.63.0 (4b91a6ea7 2022-08-08)"\n' >"$SIDE/rust/rustc"
printf '#!/bin/sh\necho "cargo was called" >&2\nexit 3\n' >"$SIDE/rust/cargo"
chmod +x "$SIDE/rust"/*
refused 2 'there is Rust 1.63.0, which is too old: install Rust' bash -c 'with_tools ":$SIDE/rust" install'
sed -i 's/1[.]63/99.0/' "$SIDE/rust/rustc"
refused 2 'there is no C compiler.* a C compiler \(Debian: gcc libc6-dev\)' bash -c 'with_tools ":$SIDE/rust" install'
ln -s "$(command -v cc)" "$SIDE/tools/cc"
refused 2 'cargo was called' bash -c 'with_tools ":$SIDE/rust" install'
refused 2 'there is no llvm-profdata of this compiler: rustup component add llvm-tools' bash -c 'PGO=1 with_tools ":$SIDE/rust" release'

# What a user has built is what root installs, who has no Rust.
built_small
mkdir "$SIDE/tree/target" "$SIDE/others"
mv "$SIDE/built" "$SIDE/tree/target/release"
ln -s /usr/bin/* "$SIDE/others/"
rm -f "$SIDE/others"/{cargo,rustc,rustup,mpicc*}
PATH=$SIDE/others PREFIX=$SIDE/plain make --no-print-directory -C "$SIDE/tree" install >"$SIDE/said" 2>&1 || fail "what is built is not installed: $(cat "$SIDE/said")"
grep -q 'there is no cargo: installing what is in target/release' "$SIDE/said" || fail "it does not say what it installs: $(cat "$SIDE/said")"
PREFIX=$SIDE/plain "$here/scripts/install" --remove >/dev/null || fail "it cannot be removed there"

# A full disk, at once or in the middle of it: what was there is there, and works, and nothing is left beside it.
if [ "$(id -u)" -eq 0 ]; then
    mkdir "$SIDE/small"
    mount -t tmpfs -o size=4m tmpfs "$SIDE/small"
    refused 1 'nothing was installed' env PREFIX="$SIDE/small" "$here/scripts/install" --built "${IOGATE%/*}"
    [ -z "$(find "$SIDE/small" -type f)" ] || fail "a full disk leaves files: $(find "$SIDE/small" -type f)"
    mount -o remount,size=1g "$SIDE/small"
    built=$SIDE/tree/target/release
    PREFIX=$SIDE/small "$here/scripts/install" --built "$built" >/dev/null || fail "it cannot be installed on another file system"
    sums() { (cd "$SIDE/small" && find . ! -type d -print0 | sort -z | xargs -0 sha256sum); }
    sums >"$SIDE/before"
    # Another version: the next program fits, and not all that comes behind it.
    for file in "$built/iogate" "$built"/*.so; do echo another >>"$file"; done
    size=$(($(du -sk "$SIDE/small" | cut -f1) + $(stat --format=%s "$built/iogate") / 1024 + 1024))
    mount -o "remount,size=${size}k" "$SIDE/small"
    refused 1 '(agios|gate|preload|turn)[^ ]* cannot be written: nothing was installed' env PREFIX="$SIDE/small" "$here/scripts/install" --built "$built"
    sums >"$SIDE/after"
    cmp "$SIDE/before" "$SIDE/after" || fail "a full disk leaves something else than there was"
    "$SIDE/small/bin/iogate" --version >/dev/null || fail "what was installed before does not run"
    mount -o remount,size=1g "$SIDE/small"
    PREFIX=$SIDE/small "$here/scripts/install" --built "$built" >/dev/null || fail "with room, it cannot be installed"
    cmp "$built/iogate" "$SIDE/small/bin/iogate" || fail "with room, another program is installed"
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
