#!/usr/bin/env bash
# What storage charges, as a table, as JSON and as a profile that is a device; a directory that is full or cannot be written, and profiles
# that are none, are refused in one line, and nothing is left behind.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs jq
SMALL=$WORK/small
end() {
    local status=$?
    ! mountpoint --quiet "$SMALL" || umount --lazy "$SMALL" || true
    clean_up "$status"
}
trap end EXIT
mkdir "$SMALL"

"$IOGATE" profile "$SRC" --budget 2s --out "$SIDE/here.toml" --json >"$SIDE/here.json" || fail "no profile of a directory"
[ -z "$(ls -A "$SRC")" ] || fail "left behind: $(ls -A "$SRC")"
jq -e '.read.random[0].low_ns | .value > 0 and .count > 0' "$SIDE/here.json" >/dev/null || fail "nothing was measured"
jq -e '[.read.speedup_small, .write.speedup_large, .in_flight | length] == [6, 6, 6]' "$SIDE/here.json" >/dev/null ||
    fail "not all numbers in flight are there"
"$IOGATE" profile "$SRC" --budget 2s >"$SIDE/table" || fail "no table"
for said in '^read .*sequential' '^write .*random' '^ *32 .*#' '^the gate: '; do
    grep -q "$said" "$SIDE/table" || fail "the table does not say '$said': $(cat "$SIDE/table")"
done
echo "time_us,app,client,file,op,offset,bytes
0,1,1,a,r,0,4096" >"$SIDE/trace.csv"
replay() { "$IOGATE" replay "$SIDE/trace.csv" --device "profile:$1"; }
replay "$SIDE/here.toml" >/dev/null || fail "a profile is no device"

echo "== a mount that knows what its storage charges"
mount_gate --profile "$SIDE/here.toml"
"$IOGATE" status "$MNT" >"$SIDE/status" || fail "status failed"
grep -q "^profile .*here.toml" "$SIDE/status" || fail "the status does not say which profile: $(cat "$SIDE/status")"
echo data >"$MNT/file"
cmp "$MNT/file" "$SRC/file"
unmount_gate
rm "$SRC/file"

echo "== profiles that are none"
"$IOGATE" profile --device memory --out "$SIDE/good.toml" >/dev/null || fail "no profile of a model"
replay "$SIDE/good.toml" >/dev/null || fail "a profile is no device"
# bad PATTERN SED...: a profile that has been changed so is refused.
bad() {
    local pattern=$1
    shift
    sed "$@" "$SIDE/good.toml" >"$SIDE/bad.toml"
    ! cmp -s "$SIDE/good.toml" "$SIDE/bad.toml" || fail "nothing was changed by $*"
    refused 2 "the profile .*bad.toml: $pattern" "$IOGATE" replay "$SIDE/trace.csv" --device "profile:$SIDE/bad.toml"
}
bad 'version: expected 1, found 2' 's/^version = 1/version = 2/'
bad '.*version' '/^version/d'
bad '.*expected' 's/\[4410, /[-5, /'
bad '.*expected' 's/\[4410, /[1.5e300, /'
bad '.*expected' 's/\[4410, /[0, /'
bad '.*' '5,$d'
bad '.*' 's/=/:/'
refused 2 'the profile .*nowhere.toml' "$IOGATE" replay "$SIDE/trace.csv" --device "profile:$SIDE/nowhere.toml"
mounted() { refused 2 "$1" "$IOGATE" mount "$SRC" "$SIDE" --profile "$SIDE/$2" "${@:3}"; }
mounted 'good.toml: expected one of a file system of type .*, found one of a ' good.toml
mounted 'bad.toml: ' bad.toml
mounted 'nowhere.toml: ' nowhere.toml
mounted 'expected with a directory, found with a modelled store' good.toml --store modelled
head -c 4096 /dev/urandom >"$SIDE/bad.toml"
refused 2 'the profile .*bad.toml' "$IOGATE" replay "$SIDE/trace.csv" --device "profile:$SIDE/bad.toml"

echo "== directories that cannot be profiled"
refused 1 'nowhere cannot be profiled' "$IOGATE" profile "$SIDE/nowhere" --budget 1s
refused 1 'trace.csv cannot be profiled' "$IOGATE" profile "$SIDE/trace.csv" --budget 1s
refused 1 'proc cannot be profiled' "$IOGATE" profile /proc --budget 1s
refused 2 'required' "$IOGATE" profile
refused 2 'cannot be used with' "$IOGATE" profile "$SRC" --device hdd
mount -t tmpfs -o size=16m tmpfs "$SMALL" 2>/dev/null || skip "a small file system takes the right to mount"
refused 1 'small cannot be profiled: No space left' "$IOGATE" profile "$SMALL" --budget 1s
grep -q '64 MiB to 4 GiB' "$SIDE/refused" || fail "it does not say how much room it takes"
[ -z "$(ls -A "$SMALL")" ] || fail "left behind: $(ls -A "$SMALL")"
mount -o remount,ro "$SMALL" || fail "it cannot be remounted"
refused 1 'small cannot be profiled: Read-only' "$IOGATE" profile "$SMALL" --budget 1s
