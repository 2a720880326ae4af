#!/usr/bin/env bash
# `iogate why` of a mount and of a server on a modelled disk, with the accounts of samples that they keep by themselves, and exact ones: it
# names who slows a small reader down, causes sum to the time, and who has gone is charged nothing; what the reader would gain is foretold
# by a simulation of what was recorded. What is neither a place nor a scenario, and what does not fit, is refused in a line.
# limit: 180
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs fio jq
truncate -s 1G "$SRC/small" "$SRC/large"

# Programs that read until they are killed: one request of 4 KiB at a time, and sixteen of 256 KiB.
reader() {
    local app=$1 file=$2 size=$3 jobs=$4
    IOGATE_APP=$app fio --name="$app" --filename="$MNT/$file" --readonly --ioengine=psync --rw=randread --bs="$size" --size=1g \
        --numjobs="$jobs" --thread --time_based --runtime=600 --output="$SIDE/$app.out" &
}
served() { "$IOGATE" status "$MNT" --json | jq -e --argjson app "$1" --argjson least "$2" '[.apps[] | select(.id == $app) | .requests] | add // 0 | . >= $least' >/dev/null; }
why() { "$IOGATE" why "$@" --json >"$SIDE/why.json"; }
# Of an application in what `why` has said: its causes, and its own part with that of others, against its time, in millionths.
sums() { jq -c --arg app "$1" '.[0].apps[] | select(.app == $app) | [([.causes[].seconds] | add), ([.apps[].seconds] | add), .busy_s] | map(. * 1e6 | round)' "$SIDE/why.json"; }
charged() { jq --arg app "$1" --arg by "$2" '[.[0].apps[] | select(.app == $app) | .apps[] | select(.name == $by) | .seconds] | add // 0' "$SIDE/why.json"; }
is_busy() { jq -e --arg app "$1" '[.[0].apps[] | select(.app == $app) | .busy_s] | add // 0 | . > 0' "$SIDE/why.json" >/dev/null; }
# The reader 4711 waits mostly for 4712, at this place.
names_the_culprit() {
    local place=$1 sum
    why "$place" --app 4711 --for 3s || fail "why says nothing"
    is_busy 4711 || fail "4711 had no requests: $(cat "$SIDE/why.json")"
    sum=$(sums 4711)
    jq -e '(.[0] - .[2] | fabs) <= 20 and .[1] <= .[2] + 20' <<<"$sum" >/dev/null || fail "causes, whose time, and time in us: $sum"
    jq -e '.[0].apps | length == 1 and (.[0].apps | max_by(.seconds) | .name == "4712" and .percent > 50)' "$SIDE/why.json" >/dev/null ||
        fail "4712 is not to blame: $(cat "$SIDE/why.json")"
    jq -e '.[0].samples > 5 and .[0].apps[0].busy_plus_minus_s > 0' "$SIDE/why.json" >/dev/null || fail "it does not say how sure it is: $(cat "$SIDE/why.json")"
    jq -e '.[0].seconds >= 2.9 and .[0].apps[0].busy_s <= .[0].seconds + 0.1' "$SIDE/why.json" >/dev/null || fail "$(cat "$SIDE/why.json")"
}
# The culprit is killed, and after what it had in the gate nothing is charged to it, at any of these places.
is_innocent() { why "$1" --for 1s && is_busy 4711 && [ "$(charged 4711 4712)" = 0 ]; }
culprit_goes() {
    kill -KILL "$culprit"
    wait "$culprit" || true
    for place in "$@"; do
        eventually 30 is_innocent "$place" || fail "4712 has gone, and is charged $(charged 4711 4712) s"
        is_innocent "$place" || fail "4712 has gone, and is charged $(charged 4711 4712) s again"
        "$IOGATE" why "$place" --app 4711 --for 1s | grep '^4711 had requests .* no other application slowed it down' >/dev/null ||
            fail "somebody is said to slow 4711 down"
        why "$place" || fail "why says nothing of all the time"
        jq -e '.[0].total and .[0].seconds > 4' "$SIDE/why.json" >/dev/null || fail "$(cat "$SIDE/why.json")"
        jq -en --argjson charged "$(charged 4711 4712)" '$charged > 1' >/dev/null || fail "what was is forgotten: $(cat "$SIDE/why.json")"
    done
}

# Without 4712, 4711 would be so many times as fast, as the recorded window is simulated on the device that the store models.
foretold() {
    why "$1" --app 4711 --counterfactual 4712 --device hdd --for 4s &&
        jq -e '.[0].apps[0].gains[0] | select(.without == "4712" and .charged_s > 0) | .with_s / .without_s' "$SIDE/why.json" >"$SIDE/foretold"
}
requests() { "$IOGATE" status "$MNT" --json | jq '[.apps[] | select(.id == 4711) | .requests] | add // 0'; }
# How many requests of 4711 are served in four seconds.
pace() {
    local before
    before=$(requests)
    sleep 4
    echo $(($(requests) - before))
}

# --- What cannot be asked.
refused 2 "no-such is not there; expected a mount point, a server's address .* or a scenario" "$IOGATE" why no-such
refused 2 "did you mean 'two-readers'" "$IOGATE" why two-reader
refused 1 'not the root of an iogate mount' "$IOGATE" why "$SRC"
refused 2 '/no/mount is not there' "$IOGATE" why /no/mount
refused 1 'cannot be reached' "$IOGATE" why "unix:$WORK/nobody"
refused 2 '--for is for mounts and servers: two-readers is a scenario' "$IOGATE" why two-readers --for 1s
refused 2 '--quick is for scenarios' "$IOGATE" why "$SRC" --quick
refused 2 '--device is for mounts and servers' "$IOGATE" why two-readers --counterfactual reader-1 --device hdd

# --- A mount.
mount_gate --store modelled --device hdd --depth 1
refused 2 'more than no time' "$IOGATE" why "$MNT" --for 0
refused 2 '--export is for servers' "$IOGATE" why "$MNT" --export e
refused 2 'accounts: expected sampled, on or off, found maybe' "$IOGATE" set "$MNT" accounts=maybe
refused 2 'by itself' "$IOGATE" set "$MNT" accounts=off scheduler=fifo
"$IOGATE" why "$MNT" | grep '^No application has had requests in the gate yet' >/dev/null || fail "somebody has had requests"
"$IOGATE" why "$MNT" --for 1s | grep '^No application had requests in the gate' >/dev/null || fail "somebody had requests"
reader 4711 small 4k 1
victim=$!
reader 4712 large 256k 16
culprit=$!
eventually 60 served 4711 5 && eventually 60 served 4712 20 || fail "they do not read"
names_the_culprit "$MNT"
refused 2 'no-such-profile' "$IOGATE" why "$MNT" --counterfactual 4712 --profile "$WORK/no-such-profile"
refused 2 "unknown application '4713'" "$IOGATE" why "$MNT" --counterfactual 4713 --for 1s
eventually 60 foretold "$MNT" || fail "what 4711 gains without 4712 is not said: $(cat "$SIDE/why.json")"
"$IOGATE" why "$MNT" --app 4711 --counterfactual 4712 --for 1s | grep -E '^(Without 4712 it takes .* less than|What it gains without 4712 cannot be said: )' ||
    fail "there is no sentence about it"
beside=$(pace)
"$IOGATE" why "$MNT" --app 4711 --for 1s --html "$SIDE/why.html" >"$SIDE/text"
grep '^4711 had requests in the gate for .*; 4712 slowed it down most' "$SIDE/text" || fail "$(cat "$SIDE/text")"
grep '^4711 had requests in the gate for .* +- .*; 4712 slowed it down most: .* +- ' "$SIDE/text" || fail "it does not say how sure it is: $(cat "$SIDE/text")"
grep ', from [0-9]* samples$' "$SIDE/text" || fail "it does not say of how many samples: $(cat "$SIDE/text")"
grep '^What to do: ' "$SIDE/text" || fail "it does not say what to do"
[ "$(grep -o '<svg' "$SIDE/why.html" | wc -l)" -ge 2 ] || fail "the page has no pictures"
grep -F '4712 slowed it down most' "$SIDE/why.html" >/dev/null || fail "the page does not say who"
refused 2 "unknown application '4713'; .*expected one of: 4711, 4712" "$IOGATE" why "$MNT" --app 4713
refused 2 "unknown application 'user 0'" "$IOGATE" why "$MNT" --user 0
refused 2 'knows no such user' "$IOGATE" why "$MNT" --user no-such-user
culprit_goes "$MNT"
jq -en --argjson said "$(cat "$SIDE/foretold")" --argjson beside "$beside" --argjson alone "$(pace)" \
    '$said > 2 and ($alone / $beside / $said | . > 0.5 and . < 2)' >/dev/null ||
    fail "4711 was to be $(cat "$SIDE/foretold") times as fast without 4712; it had $beside requests in four seconds before"
"$IOGATE" set "$MNT" accounts=off
refused 1 "keeps no accounts" "$IOGATE" why "$MNT"
grep "hint: .iogate set $MNT accounts=sampled" "$SIDE/refused" >/dev/null || fail "it does not say what to do"
"$IOGATE" set "$MNT" accounts=on
why "$MNT" --for 1s && is_busy 4711 || fail "accounts do not begin again"
jq -e '.[0].samples == null and .[0].apps[0].busy_plus_minus_s == null' "$SIDE/why.json" >/dev/null || fail "exact accounts are of samples"
[ "$(why "$MNT" && charged 4711 4712)" = 0 ] || fail "new accounts know of what was before"
kill -KILL "$victim"
wait "$victim" || true
unmount_gate

# --- A server, whose mount has a gate of its own.
cat >"$WORK/server.toml" <<END
[[listen]]
at = "unix:$WORK/socket"
[[export]]
directory = "$SRC"
device = "hdd"
gate = { scheduler = "fifo", depth = 1 }
users = { squash = "none" }
END
"$IOGATE" serve "$WORK/server.toml" >"$WORK/server.out" 2>"$WORK/server.log" &
server=$!
eventually 10 grep -q '^ready$' "$WORK/server.out" || fail "the server does not start"
"$IOGATE" mount --remote "unix:$WORK/socket" "$MNT" -f >>"$WORK/mount.log" 2>&1 &
GATE_PID=$!
eventually 10 is_mounted || fail "not mounted"
reader 4711 small 4k 1
victim=$!
reader 4712 large 256k 16
culprit=$!
eventually 60 served 4711 5 && eventually 60 served 4712 20 || fail "they do not read"
names_the_culprit "unix:$WORK/socket"
names_the_culprit "$MNT"
refused 1 'no-export' "$IOGATE" why "unix:$WORK/socket" --export no-export
culprit_goes "unix:$WORK/socket" "$MNT"
"$IOGATE" set "unix:$WORK/socket" accounts=off
refused 1 "keeps no accounts" "$IOGATE" why "unix:$WORK/socket"
kill -KILL "$victim"
wait "$victim" || true
unmount_gate
kill -TERM "$server"
wait "$server" || fail "the server ended with status $?"
