#!/usr/bin/env bash
# What a mount or a server learns of its storage is what the next one of the same file system begins with, and no other: several at a time, a folder
# that cannot be written, a full one, and files that are broken or of something else.
# limit: 90
# variants: auto
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs fio jq
OTHER=$WORK/other SMALL=$WORK/small MNT2=$WORK/mount2 SECOND='' SERVER=''
KEPT=$WORK/state/profiles
export IOGATE_PROFILES=$KEPT
end() {
    local status=$?
    for point in "$MNT2" "$OTHER" "$SMALL"; do
        ! mountpoint --quiet "$point" || umount --lazy "$point" || true
    done
    [ -z "$SERVER" ] || kill -KILL "$SERVER" 2>/dev/null || true
    clean_up "$status"
}
trap end EXIT
mkdir "$OTHER" "$SMALL" "$MNT2"
"$IOGATE" profile --kept "$SRC" >"$SIDE/said" 2>&1 || skip "$(head -n 1 "$SIDE/said")"

mount_kept() { mount_gate --profile kept "$@"; }
says() { "$IOGATE" status "${2:-$MNT}" --json | jq -e "$1" >/dev/null; }
# load read|write [DIR]: until so much has been learnt that prices are known.
load() {
    fio --name="$1" --directory="${2:-$MNT}" --ioengine=psync --rw="rand$1" --bs=16k --size=16m --numjobs=4 --time_based --runtime=2 \
        --group_reporting --output="$SIDE/fio.out" || fail "fio: $(cat "$SIDE/fio.out")"
    says '.choice.windows > 0 or .choice.held != null' "${2:-$MNT}" || fail "no window is looked at"
}
cells() { grep -c "\"$1\", \"" "$(file)"; }
file() { find "$KEPT" -name '*.toml'; }
in_place() { "$IOGATE" profile --kept --json | jq -e "$1" >/dev/null; }

echo "== the first one learns, and the second one begins with that"
mount_kept
says '.choice.prices == "assumed"' || fail "it begins with something: $("$IOGATE" status "$MNT")"
[ -z "$(file)" ] || fail "there is a file before anything is learnt"
load read
says '.choice.prices == "learnt here"' || fail "nothing is learnt: $("$IOGATE" status "$MNT")"
unmount_gate
[ "$(file | wc -l)" -eq 1 ] || fail "expected one file, found $(ls -A "$KEPT")"
[ "$(stat -c %a "$KEPT") $(stat -c %a "$(file)")" = "700 600" ] || fail "others may read it"
in_place 'length == 1 and .[0].dispatches > 64' || fail "it is not listed: $("$IOGATE" profile --kept)"
"$IOGATE" profile --kept "$SRC" | grep -q '^read .*random' || fail "it is not shown"
mount_kept
says '.choice.prices | startswith("kept since 2")' || fail "it begins with nothing: $("$IOGATE" status "$MNT")"
says '.choice.held == null' || fail "it says that it knows too little: $("$IOGATE" status "$MNT")"
"$IOGATE" status "$MNT" | grep -q '^prices  *kept since 2' || fail "the status does not say where prices come from"
load read
says '.choice.held != "too few dispatches yet"' || fail "it does not go on"
unmount_gate

echo "== a server of the same directory, too"
printf '[[listen]]\nat = "unix:%s"\n[[export]]\ndirectory = "%s"\nprofile = "kept"\n' "$SIDE/socket" "$SRC" >"$SIDE/server.toml"
"$IOGATE" serve "$SIDE/server.toml" >"$SIDE/server.out" 2>&1 &
SERVER=$!
is_up() { grep -q '^ready$' "$SIDE/server.out"; }
eventually 10 is_up || fail "no server: $(cat "$SIDE/server.out")"
says '.exports[0].gate.choice.prices | startswith("kept since 2")' "unix:$SIDE/socket" || fail "the server begins with nothing"
kill -TERM "$SERVER"
wait "$SERVER" || fail "the server did not end well"
SERVER=
before="1 $(md5sum <"$(file)")"

echo "== not where nobody says so, nor where a scheduler is named, nor past the page cache, nor of what is no storage"
mount_gate
says '.choice.prices == "assumed"' || fail "it begins with what is kept, and nobody said so"
load read
unmount_gate
[ "$(file | wc -l) $(md5sum <"$(file)")" = "$before" ] || fail "something was written, and nobody said so"
SCHEDULER=fifo mount_kept
says 'has("choice") | not' || fail "it is chosen"
unmount_gate
mount_kept --direct
says '.choice.prices == "assumed"' || fail "direct I/O begins with the prices of the page cache"
unmount_gate
refused 2 'expected with a directory, found with a modelled store' "$IOGATE" mount "$SRC" "$SIDE" --profile kept --store modelled
if mount -t tmpfs -o size=64m tmpfs "$OTHER" 2>/dev/null; then
    (SRC=$OTHER && mount_kept && says '.choice.prices == "assumed"' && load write && unmount_gate) || fail "memory is taken for what is kept"
    grep -q "^warning: nothing is kept of $OTHER: " "$WORK/mount.log" || fail "it does not say that memory is not kept"
fi
[ "$(file | wc -l) $(md5sum <"$(file)")" = "$before" ] || fail "something else is kept: $(ls -A "$KEPT")"

echo "== two at a time: nothing is lost of what only one of them has measured"
"$IOGATE" profile --kept "$SRC" --forget | grep -q '^1 file system is forgotten$' || fail "it is not forgotten"
[ -z "$(file)" ] || fail "it is there still"
mount_kept
first=$GATE_PID
"$IOGATE" mount "$SRC" "$MNT2" --scheduler auto --profile kept --cache direct -f >>"$WORK/mount2.log" 2>&1 &
SECOND=$!
eventually 10 mountpoint --quiet "$MNT2" || fail "the second mount did not come up"
load read
load write "$MNT2"
GATE_PID=$first
unmount_gate
[ "$(cells read)" -gt 0 ] || fail "the first one has kept nothing"
"$IOGATE" umount "$MNT2" || fail "the second one cannot be unmounted"
wait "$SECOND" || fail "the second one did not end well"
[ "$(cells read)" -gt 0 ] && [ "$(cells write)" -gt 0 ] || fail "the last one has lost something: $(cat "$(file)")"

echo "== files that are broken, or of something else, are said, and written anew"
good=$SIDE/good
cp "$(file)" "$good"
# refused_kept PATTERN SED: the mount says so in one line, knows nothing of it, and goes on.
refused_kept() {
    sed "$2" "$good" >"$(file)"
    ! cmp -s "$good" "$(file)" || fail "nothing was changed by $2"
    : >"$WORK/mount.log"
    mount_kept
    grep -q "^warning: .*$1.*: it begins anew$" "$WORK/mount.log" || fail "it does not say '$1': $(cat "$WORK/mount.log")"
    says '.choice.prices == "assumed"' || fail "it begins with a file that says '$1'"
    unmount_gate
}
refused_kept 'version: expected 1, found 7' 's/^version = 1/version = 7/'
refused_kept 'another type of file system' 's/^kind = ".*"/kind = "other"/'
refused_kept 'another device' 's/^rotational = .*/rotational = true/; t; s/^device = ".*"/device = "other"/'
refused_kept 'not TOML' 's/\[/{/'
refused_kept 'cells: expected what a dispatch can take' 's/^  \["read", "jump", 1, [0-9]*,/  ["read", "jump", 1, -4,/'
head -c 100000 /dev/urandom >"$(file)"
mount_kept
load read
unmount_gate
in_place 'length == 1 and .[0].dispatches > 64' || fail "it is not written anew: $("$IOGATE" profile --kept)"
name=$(file)
rm "$name" && mkfifo "$name"
mount_kept
grep -q 'it is no regular file: it begins anew' "$WORK/mount.log" || fail "a pipe is read"
unmount_gate
rm "$name"

echo "== folders that cannot be written"
: >"$SIDE/file"
IOGATE_PROFILES=$SIDE/file refused 1 'file must be a directory that can be read' "$IOGATE" profile --kept
IOGATE_PROFILES=$SIDE/nowhere "$IOGATE" profile --kept | grep -q '^nothing is kept in ' || fail "a folder that is not there yet is no error"
IOGATE_PROFILES=$SIDE/file/profiles mount_kept
grep -q "^warning: what is learnt of $SRC is not kept: $SIDE/file/profiles: " "$WORK/mount.log" || fail "it does not say so: $(cat "$WORK/mount.log")"
load read
unmount_gate
if mount -t tmpfs -o size=4k tmpfs "$SMALL" 2>/dev/null; then
    head -c 4096 /dev/zero >"$SMALL/full" || true
    : >"$WORK/mount.log"
    IOGATE_PROFILES=$SMALL mount_kept
    load read
    unmount_gate
    grep -q "^warning: what was learnt of the storage is not kept: $SMALL: No space left" "$WORK/mount.log" || fail "it does not say so: $(cat "$WORK/mount.log")"
    [ "$(ls -A "$SMALL")" = full ] || fail "something is left: $(ls -A "$SMALL")"
fi
[ "$(grep -c '^warning' "$WORK/mount.log")" -le 1 ] || fail "it says so more than once"
! grep -q 'panicked' "$WORK/mount.log" || fail "it panicked"
