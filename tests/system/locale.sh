#!/usr/bin/env bash
# In a locale that is not UTF-8, with names that are not: files, sources, mount points, servers' directories and a prefix have them, byte by byte; what
# is printed for machines stays UTF-8, and what is refused is refused in a line.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs python3
here=$(cd "$(dirname "$0")/../.." && pwd)
unset LANG LANGUAGE
export LC_ALL=C
# Latin-1: no character of UTF-8 begins so.
name=$'na\xefve \xff'
plain=$MNT
MNT=$WORK/$'mount \xe9'
SRC=$WORK/$'source \xe8'
mkdir "$MNT" "$SRC"
end() {
    local status=$?
    ! mountpoint --quiet "$MNT" || umount --lazy "$MNT" || true
    MNT=$plain
    clean_up "$status"
}
trap end EXIT
# The kernel's list; findmnt escapes such names.
is_unmounted() { ! mountpoint --quiet "$MNT"; }
# same FOLDER: the names in a folder are those that were made.
same() {
    python3 - "$1" "$name" <<'PY' || fail "in $1 there are other names"
import os, sys

folder, name = map(os.fsencode, sys.argv[1:])
found = sorted(os.listdir(folder))
assert found == sorted([b"folder \xe4", name, b"link"]), found
assert os.readlink(folder + b"/link") == name, os.readlink(folder + b"/link")
PY
}
# utf8 COMMAND...: what it prints.
utf8() {
    "$@" >"$SIDE/said" || fail "$1 $2 fails"
    iconv -f UTF-8 -t UTF-8 "$SIDE/said" >/dev/null || fail "$1 $2 prints what is not UTF-8: $(cat -v "$SIDE/said")"
}

mount_gate
echo content >"$MNT/$name"
mkdir "$MNT/folder" && mv "$MNT/folder" "$MNT/"$'folder \xe4'
ln -s "$name" "$MNT/link"
grep -qx content "$MNT/link" || fail "a name is another one's"
same "$MNT" && same "$SRC"
utf8 "$IOGATE" status "$MNT"
utf8 "$IOGATE" top --once "$MNT"
utf8 "$IOGATE" why "$MNT"
utf8 "$IOGATE" layout "$MNT/$name"
utf8 "$IOGATE" status --json "$MNT"
python3 -c 'import json, sys; json.load(open(sys.argv[1], encoding="utf-8"))' "$SIDE/said" || fail "the status is no JSON"
"$IOGATE" set "$MNT" scheduler=sjf || fail "the scheduler cannot be changed"
utf8 "$IOGATE" record "$MNT" --for 100ms --out "$SIDE/"$'trace \xe9.csv'
printf '%s\n' time_us,app,client,file,op,offset,bytes 0,1,1,a,r,0,8 >"$SIDE/"$'trace \xe9.csv'
utf8 "$IOGATE" advise "$SIDE/"$'trace \xe9.csv' --device hdd
unmount_gate
"$IOGATE" mount "$SRC" "$MNT" || fail "it cannot be mounted in the background"
same "$MNT"
"$IOGATE" umount "$MNT" || fail "it cannot be unmounted"

# A server of it, and programs by the library.
"$IOGATE" serve --directory "$SRC" --listen "unix:$SIDE/socket" >"$SIDE/server.out" 2>&1 &
SERVER=$!
eventually 10 grep -qx ready "$SIDE/server.out" || fail "no server: $(cat -v "$SIDE/server.out")"
"$IOGATE" mount --remote "unix:$SIDE/socket" "$MNT" || fail "the server cannot be mounted"
same "$MNT"
"$IOGATE" umount "$MNT" || fail "the server's mount cannot be unmounted"
export IOGATE_FORWARDERS="unix:$SIDE/socket"
LD_PRELOAD=${IOGATE%/*}/libiogate_preload.so cat "/iogate/$name" >"$SIDE/said" || fail "the library does not find the name"
grep -qx content "$SIDE/said" || fail "the library reads another file"
kill -TERM "$SERVER"
wait "$SERVER" || fail "the server did not end well"

# What is refused.
for command in status set umount layout profile 'policy check' 'sim' 'nfs' schedulers completions; do
    arguments=("$SIDE/"$'no \xe9')
    [ "$command" != set ] || arguments+=(scheduler=sjf)
    # shellcheck disable=SC2086 # two words
    refused any '^error: ' "$IOGATE" $command "${arguments[@]}"
    [ "$(grep -vc '^  hint: ' "$SIDE/refused")" -eq 1 ] || fail "iogate $command says more than one line"
    iconv -f UTF-8 -t UTF-8 "$SIDE/refused" >/dev/null || fail "iogate $command says what is not UTF-8"
done

# Installed in such a place.
export PREFIX=$SIDE/$'place \xe9'
unset DESTDIR LIBDIR
built_small
"$here/scripts/install" --built "$SIDE/built" >"$SIDE/said" || fail "it cannot be installed: $(cat -v "$SIDE/said")"
"$PREFIX/bin/iogate" run --policy none --target "$SIDE" true || fail "what is installed does not run"
"$here/scripts/install" --remove >/dev/null || fail "it cannot be removed"
[ -z "$(find "$PREFIX" ! -type d)" ] || fail "files are left: $(find "$PREFIX" ! -type d)"
