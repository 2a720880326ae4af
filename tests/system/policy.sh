#!/usr/bin/env bash
# Who is entitled to what: users of a mount are told apart, a cap holds, a policy changes while programs wait for it, one that is
# wrong changes nothing, a cap of a group holds for its users together, that of an account for its jobs, that of a path for the
# files below it, and on a modelled disk 8 readers get as much as 64. A server takes the same.
# limit: 120
# variants: fifo aioli
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs fio jq setpriv
[ "$(id -u)" -eq 0 ] || skip "acting as two users takes root"
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }

# --- What is wrong is said with its line, before anything is mounted.
printf 'by = "user"\n[class.2001]\nmax = "2MiB/s"\n' >"$SIDE/capped.toml"
printf 'by = "user"\n[class.2001]\nweight = 0\n' >"$SIDE/broken.toml"
refused 2 'broken.toml, line 3: class.2001.weight: expected a whole number from 1 to 10000, found 0' \
    "$IOGATE" policy check "$SIDE/broken.toml"
refused 2 'line 3: class.2001.weight' "$IOGATE" mount "$SRC" "$MNT" --policy "$SIDE/broken.toml"
refused 2 'cannot be read' "$IOGATE" mount "$SRC" "$MNT" --policy "$SIDE/none.toml"
refused 2 'cannot be used with' "$IOGATE" mount "$SRC" "$MNT" --policy "$SIDE/capped.toml" --fair user
refused 2 'user, job, app' "$IOGATE" mount "$SRC" "$MNT" --fair group
"$IOGATE" policy check "$SIDE/capped.toml" >"$SIDE/checked"
grep -q '2001 .*2MiB/s' "$SIDE/checked" || fail "the check does not show the cap: $(cat "$SIDE/checked")"

# --- Users are told apart, whatever their processes say of themselves.
chmod 0777 "$SRC"
chmod 0755 "$WORK" # its folders may be entered by all
mount_gate --fair user
status() { "$IOGATE" status "$MNT" --json >"$SIDE/status.json"; }
number_of() { echo $((0xA0000000 + $1)); }
for user in 2001 2002; do
    IOGATE_APP=same as "$user" dd if=/dev/zero of="$MNT/of-$user" bs=64K count=4 status=none || fail "no write by $user"
    status
    jq -e --argjson app "$(number_of "$user")" '.apps[] | select(.id == $app) | .bytes == 262144' "$SIDE/status.json" >/dev/null ||
        fail "user $user is not told apart: $(jq -c .apps "$SIDE/status.json")"
done
"$IOGATE" status "$MNT" | grep -q '^policy  *by user: an equal share for each' || fail "the status does not say the policy"

# --- A cap, set while the mount is in use: 6 MiB at 2 MiB/s take at least 2.8 s, as two requests of 128 KiB may be ahead.
"$IOGATE" set "$MNT" "policy=$SIDE/capped.toml" || fail "the policy cannot be set"
began=$(date +%s%3N)
as 2001 dd if=/dev/zero of="$MNT/of-2001" bs=128K count=48 status=none &
capped=$!
as 2002 dd if=/dev/zero of="$MNT/of-2002" bs=128K count=48 status=none || fail "no write beside the capped one"
wait "$capped" || fail "no write by the capped one"
took=$(($(date +%s%3N) - began))
[ "$took" -ge 2800 ] || fail "6 MiB at 2 MiB/s took $took ms"

# --- One that is wrong leaves the one before in force; one that goes lets go who waits.
printf 'by = "user"\n[class.2001]\nmax = "1kB/s"\n' >"$SIDE/stopped.toml"
"$IOGATE" set "$MNT" "policy=$SIDE/stopped.toml"
refused 2 'line 3: class.2001.weight.*' "$IOGATE" set "$MNT" "policy=$SIDE/broken.toml"
grep -q 'nothing was changed' "$SIDE/refused" || fail "it does not say that nothing was changed"
refused 2 'by itself' "$IOGATE" set "$MNT" "policy=$SIDE/capped.toml" scheduler=fifo
refused 2 'one of user, job, app' "$IOGATE" set "$MNT" fair=group
as 2001 dd if=/dev/zero of="$MNT/of-2001" bs=128K count=48 status=none &
stopped=$!
is_deferred() {
    status
    jq -e --argjson app "$(number_of 2001)" '.now[] | select(.app == $app) | .deferred > 0 and .max == 1000' "$SIDE/status.json" >/dev/null
}
eventually 30 is_deferred || fail "nothing is deferred: $(jq -c .now "$SIDE/status.json")"
! is_gone "$stopped" || fail "48 KiB at 1 kB/s are over"
"$IOGATE" set "$MNT" policy=none
wait "$stopped" || fail "it fails when the policy goes"
unmount_gate

# --- Groups, and users within them: equal among groups; a cap of one group holds for both of its users together, from the change on.
in_group() { setpriv --reuid "$1" --regid "$2" --clear-groups "${@:3}"; }
group_number() { echo $((0x90000000 + $1)); }
# Users 2001 and 2003 are of group 3001, 2002 is of group 3002.
printf 'by = "user"\n[group.3001]\nmax = "2MiB/s"\n[group.3001.class.2001]\nweight = 2\n[group.3002]\nweight = 3\n' >"$SIDE/tree.toml"
printf 'by = "user"\n[group.3001.class.2001]\n[group.3002.class.2001]\n' >"$SIDE/twice.toml"
refused 2 'line 3: group.3002.class.2001: expected each user once, found the one of group.3001.class.2001' \
    "$IOGATE" policy check "$SIDE/twice.toml"
"$IOGATE" policy check "$SIDE/tree.toml" >"$SIDE/checked"
grep -q '^  2001 ' "$SIDE/checked" || fail "the check shows no tree: $(cat "$SIDE/checked")"
"$IOGATE" policy check --json "$SIDE/tree.toml" | jq -e '.classes[0] | .name == "group.3001" and .max == 2097152 and .classes[0].weight == 2' >/dev/null ||
    fail "the check as JSON: $("$IOGATE" policy check --json "$SIDE/tree.toml")"
mount_gate --fair group/user --store modelled --device hdd --depth 1
"$IOGATE" status "$MNT" | grep -q '^policy  *by group/user: an equal share for each' || fail "the status does not say the policy"
for user in 2001 2003 2002; do
    in_group "$user" $((user == 2002 ? 3002 : 3001)) dd if=/dev/zero of="$MNT/in-$user" bs=128K count=1 status=none || fail "no write by $user"
done
is_within() {
    status
    jq -e --argjson user "$(number_of "$1")" --argjson group "$(group_number "$2")" \
        '.now | any(.app == $user and .within == $group) and any(.app == $group and .is_branch)' "$SIDE/status.json" >/dev/null
}
for user in 2001 2003; do is_within "$user" 3001 || fail "$user is in no group: $(jq -c .now "$SIDE/status.json")"; done
is_within 2002 3002 || fail "2002 is not in his group: $(jq -c .now "$SIDE/status.json")"
"$IOGATE" status "$MNT" | grep -q '^  user 2003' || fail "the status prints no tree"
# Each of the two would be within a cap of his own in the time that both take together.
"$IOGATE" set "$MNT" "policy=$SIDE/tree.toml" || fail "the tree cannot be set"
began=$(date +%s%3N)
in_group 2001 3001 dd if=/dev/zero of="$MNT/in-2001" bs=128K count=24 status=none &
one=$!
in_group 2003 3001 dd if=/dev/zero of="$MNT/in-2003" bs=128K count=24 status=none &
other=$!
in_group 2002 3002 dd if=/dev/zero of="$MNT/in-2002" bs=128K count=24 status=none || fail "no write beside the capped group"
wait "$one" && wait "$other" || fail "no write in the capped group"
took=$(($(date +%s%3N) - began))
[ "$took" -ge 2700 ] || fail "6 MiB of a group at 2 MiB/s took $took ms"
"$IOGATE" status "$MNT" | grep -q '^policy  *by user: 2 groups and 1 named, ' || fail "the status counts no groups"
is_within 2001 3001 && is_within 2003 3001 || fail "a change has lost who is where: $(jq -c .now "$SIDE/status.json")"
unmount_gate

# --- Accounts, and jobs within them: a cap of one account holds for both of its jobs together.
printf 'by = "account/job"\n[group.physics]\nmax = "2MiB/s"\n' >"$SIDE/accounts.toml"
"$IOGATE" policy check "$SIDE/accounts.toml" >"$SIDE/checked"
grep -q '^account physics ' "$SIDE/checked" && grep -q '^each other account ' "$SIDE/checked" || fail "the check shows no accounts: $(cat "$SIDE/checked")"
mount_gate --fair account/job
charged() { env SLURM_JOB_ACCOUNT="$1" SLURM_JOB_ID="$2" dd if=/dev/zero of="$MNT/of-job-$2" bs=128K "${@:3}" status=none; }
for job in 11 12; do charged physics "$job" count=1 || fail "no write by job $job"; done
charged biology 13 count=1 || fail "no write by job 13"
"$IOGATE" status "$MNT" >"$SIDE/shown"
grep -q '^account physics' "$SIDE/shown" && grep -q '^  job 12' "$SIDE/shown" || fail "the status shows no accounts: $(cat "$SIDE/shown")"
"$IOGATE" set "$MNT" "policy=$SIDE/accounts.toml" || fail "the policy by accounts cannot be set"
began=$(date +%s%3N)
charged physics 11 count=24 &
one=$!
charged physics 12 count=24 &
other=$!
charged biology 13 count=24 || fail "no write beside the capped account"
wait "$one" && wait "$other" || fail "no write of the capped account"
took=$(($(date +%s%3N) - began))
[ "$took" -ge 2700 ] || fail "6 MiB of an account at 2 MiB/s took $took ms"
unmount_gate

# --- Paths: a cap of a directory holds for the files below it together, and for no others.
printf 'by = "path"\n[class."capped/**"]\nmax = "2MiB/s"\n[class."*/*.h5"]\n[class."capped/x"]\n' >"$SIDE/paths.toml"
printf 'by = "path"\n[class.capped]\nmax = "1kB/s"\n' >"$SIDE/stopped-path.toml"
printf 'by = "path"\n[class.a]\n[class."/capped"]\n' >"$SIDE/absolute.toml"
refused 2 'line 3: class: expected names with one slash between two of them, .* found "/capped"' "$IOGATE" policy check "$SIDE/absolute.toml"
"$IOGATE" policy check "$SIDE/paths.toml" >"$SIDE/checked"
for line in 'capped/\*\* .*2MiB/s' 'all other paths ' 'warning: class."\*/\*.h5" overlaps class."capped/\*\*": ' 'warning: class."capped/x" has no files: '; do
    grep -q "^$line" "$SIDE/checked" || fail "the check does not say '$line': $(cat "$SIDE/checked")"
done
mkdir -m 0777 "$SRC/capped" "$SRC/capped/deep" "$SRC/free"
mount_gate --policy "$SIDE/paths.toml"
writes() { dd if=/dev/zero of="$MNT/$1" bs=128K count=24 status=none; }
began=$(date +%s%3N)
writes capped/one &
one=$!
writes capped/deep/two &
other=$!
writes free/one || fail "no write beside the capped path"
wait "$one" && wait "$other" || fail "no write below the capped path"
took=$(($(date +%s%3N) - began))
[ "$took" -ge 2700 ] || fail "6 MiB of a path at 2 MiB/s took $took ms"
# Whether each of these classes has had so many bytes: FILE, NAME BYTES, NAME BYTES.
had() {
    jq -e --arg one "$2" --arg other "$4" "[.. | objects | .apps? // empty | .[] | select(.id) | {(.name): .bytes}] | add | .[\$one] == $3 and .[\$other] == $5" \
        "$1" >/dev/null || fail "paths are not told apart: $(jq -c '[.. | objects | .apps? // empty]' "$1")"
}
status
had "$SIDE/status.json" 'path capped/**' 6291456 'other paths' 3145728
"$IOGATE" status "$MNT" | grep -q '^policy  *by path: 3 named, for all other paths weight 1' || fail "the status does not say the policy"
"$IOGATE" set "$MNT" "policy=$SIDE/stopped-path.toml"
writes capped/one &
stopped=$!
path_is_deferred() {
    status
    jq -e '.now | any(.name == "path capped" and .deferred > 0)' "$SIDE/status.json" >/dev/null
}
eventually 30 path_is_deferred || fail "nothing is deferred: $(jq -c .now "$SIDE/status.json")"
writes free/two || fail "no write beside the stopped path"
! is_gone "$stopped" || fail "3 MiB at 1 kB/s are over"
"$IOGATE" set "$MNT" policy=none
wait "$stopped" || fail "it fails when the policy goes"
unmount_gate

# --- Shares of a modelled disk: 8 readers of one application beside 64 of another one.
truncate -s 1G "$SRC/many" "$SRC/few"
mount_gate --fair app --store modelled --device hdd --depth 1
reads() {
    IOGATE_APP=$1 fio --name="$1" --filename="$MNT/$1" --readonly --ioengine=psync --rw=randread --bs=16k --size=1g --numjobs="$2" --thread \
        --time_based --runtime=300 --group_reporting --output="$SIDE/$1.out" &
}
reads many 64
many=$!
reads few 8
few=$!
requests() { jq "[.apps[] | select(.name == \"$1\") | .requests] | add // 0" "$SIDE/status.json"; }
have() {
    status
    [ "$(requests many)" -ge "$1" ] && [ "$(requests few)" -ge "$2" ]
}
eventually 60 have 64 20 || fail "they do not read: $(jq -c .apps "$SIDE/status.json")"
many_before=$(requests many) few_before=$(requests few)
eventually 60 have $((many_before + 300)) 0 || fail "many does not go on"
many_got=$(($(requests many) - many_before)) few_got=$(($(requests few) - few_before))
kill "$many" "$few"
wait "$many" "$few" || true
echo "$few_got requests of 8 readers beside $many_got of 64"
# In arrival order they would be an eighth.
[ $((few_got * 5)) -ge $((many_got * 2)) ] || fail "$few_got requests of 8 readers beside $many_got of 64"
unmount_gate

# --- A server takes the same flags and the same changes.
refused 2 'line 3' "$IOGATE" serve --directory "$SRC" --listen "unix:$WORK/socket" --policy "$SIDE/broken.toml"
"$IOGATE" serve --directory "$SRC" --listen "unix:$WORK/socket" --fair user >"$WORK/server.out" 2>>"$WORK/server.log" 3>&- &
eventually 10 grep -q '^ready$' "$WORK/server.out" || fail "the server does not start"
says() { "$IOGATE" status "unix:$WORK/socket" --json | jq -e --arg what "$1" '[.. | objects | .about // [] | flatten | index($what) != null] | any' >/dev/null; }
says 'by user: an equal share for each' || fail "the server does not say its policy"
"$IOGATE" set "unix:$WORK/socket" "policy=$SIDE/capped.toml" || fail "a server's policy cannot be set"
refused 2 'line 3: class.2001.weight' "$IOGATE" set "unix:$WORK/socket" "policy=$SIDE/broken.toml"
says 'by user: 1 named, for each other weight 1' || fail "the broken policy is in force"
"$IOGATE" set "unix:$WORK/socket" fair=group/user || fail "a server takes no groups"
says 'by group/user: an equal share for each' || fail "the server does not divide among groups"
"$IOGATE" set "unix:$WORK/socket" "policy=$SIDE/paths.toml" || fail "a server takes no paths"
"$IOGATE" mount --remote "unix:$WORK/socket" "$MNT" --scheduler fifo || fail "the server is not mounted"
began=$(date +%s%3N)
writes capped/three && writes free/three || fail "no write at the server"
took=$(($(date +%s%3N) - began))
[ "$took" -ge 1200 ] || fail "3 MiB of a path at 2 MiB/s took $took ms"
"$IOGATE" umount "$MNT" || fail "iogate umount failed"
"$IOGATE" status "unix:$WORK/socket" --json >"$SIDE/served.json"
had "$SIDE/served.json" 'path capped/**' 3145728 'other paths' 3145728
