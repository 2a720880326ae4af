#!/usr/bin/env bash
# `iogate top` in a real terminal, which tmux is: a mount in use, keys, another size, and each way to an end, after which the terminal is as before.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs tmux jq
export LC_ALL=C.UTF-8
mount_gate --fair app
touch "$SIDE/goes-on"
while [ -e "$SIDE/goes-on" ]; do
    IOGATE_APP=solver dd if=/dev/zero of="$MNT/a" bs=64k count=16 conv=notrunc status=none
    IOGATE_APP=$'evil\e[2Jname' dd if="$MNT/a" of=/dev/null bs=64k count=16 status=none
done &
writer=$!

# Plain, for a pipe: rates are those of the last second.
once() { "$IOGATE" top --once "$MNT" >"$SIDE/once" && grep -E "$1" "$SIDE/once" >/dev/null; }
eventually 30 once 'solver .* [0-9.]+ [KM]iB/s' || fail "no rate: $(cat "$SIDE/once")"
eventually 30 once 'evil.\[2Jname' || fail "no second one: $(cat "$SIDE/once")"
! grep -q $'\e' "$SIDE/once" || fail "a name reaches the terminal as it is"
eventually 30 once 'solver.* [0-9]+/50 %' || fail "no shares: $(cat "$SIDE/once")"
# Groups: a row for each, with those in it below.
"$IOGATE" set "$MNT" fair=group/user || fail "groups cannot be set"
group="group $(id -gn)" user="user $(id -un)"
grouped() { "$IOGATE" top --once "$MNT" >"$SIDE/once" && grep -A 1 -F "  $group " "$SIDE/once" | tail -n 1 | grep -F "    $user " >/dev/null; }
eventually 30 grouped || fail "no group with its user below: $(cat "$SIDE/once")"
"$IOGATE" set "$MNT" fair=app
eventually 30 once 'solver.* [0-9]+/50 %' || fail "no shares any more: $(cat "$SIDE/once")"
refused 2 'expected a terminal.*' "$IOGATE" top "$MNT"
refused 1 'not the root of an iogate mount' "$IOGATE" top --once "$SIDE"
refused 2 'at least 0.1 seconds' "$IOGATE" top "$MNT" --interval 0

# A server beside it.
"$IOGATE" serve --directory "$SRC" --listen "unix:$SIDE/socket" >"$SIDE/serve" 2>&1 &
server=$!
is_ready() { grep -qsx ready "$SIDE/serve"; }
eventually 10 is_ready || fail "the server is not ready: $(cat "$SIDE/serve")"
"$IOGATE" top --once "$MNT" "unix:$SIDE/socket" | grep -F "$MNT" >/dev/null || fail "a place is missing beside another"
# One that is gone has a row that says so, and is a failure all the same.
if "$IOGATE" top --once "$MNT" "unix:$SIDE/nowhere" >"$SIDE/once" 2>/dev/null; then
    fail "a place that does not answer is no failure"
fi
grep -F "$SIDE/nowhere" "$SIDE/once" | grep -F '(no answer)' >/dev/null || fail "the table does not say who is gone: $(cat "$SIDE/once")"
if "$IOGATE" top --once --json "$MNT" "unix:$SIDE/nowhere" >"$SIDE/once" 2>/dev/null; then
    fail "a place that does not answer is no failure as JSON"
fi
jq -e --arg mnt "$MNT" '(.[0] | .place == $mnt and (.gates[0].apps | length) > 0) and (.[1].error | test("nowhere"))' "$SIDE/once" >/dev/null ||
    fail "as JSON it is $(cat "$SIDE/once")"

# A terminal of its own: what is started says how it has ended, and the line before it is still there then.
term() { tmux -u -S "$SIDE/tmux" -f /dev/null "$@"; }
pane() { term capture-pane -p -t "$1"; }
start() {
    local name=$1
    shift
    printf -v words '%q ' "$IOGATE" top "$@"
    term new-session -d -s "$name" -x 80 -y 24 "echo before; $words; echo ended with \$?; stty -a | grep -o ' echo '; exec sleep 3600"
    term display-message -p '#{pid}' >"$SIDE/tmux.pid"
}
# says NAME PATTERN: the pane has it, eventually.
says() {
    matches() { pane "$1" | grep -E -- "$2" >/dev/null; }
    eventually 30 matches "$1" "$2" || fail "the pane does not say '$2':
$(pane "$1")"
}
# ends NAME STATUS: as it was before, with what was there before, and it echoes again.
ends() {
    says "$1" "ended with $2"
    says "$1" '^before'
    says "$1" '^ ?echo'
    [ "$(term display-message -p -t "$1" '#{alternate_on}')" = 0 ] || fail "$1: the other screen is still there"
}

start keys "$MNT" "unix:$SIDE/socket"
says keys 'iogate top  by bytes'
says keys 'solver .* [0-9.]+ [KM]iB/s .* [0-9]+/50 %'
says keys 'last minute'
says keys "unix:$SIDE/socket"
says keys '[▁▂▃▄▅▆▇█]{2}'
[ "$(term display-message -p -t keys '#{alternate_on}')" = 1 ] || fail "it does not draw on a screen of its own"
term send-keys -t keys s
says keys 'by read'
term send-keys -t keys p
says keys ' paused '
term send-keys -t keys '?'
says keys 'sort by the next column'
term send-keys -t keys x p
term resize-window -t keys -x 150 -y 40
is_wide() { pane keys | awk 'length > 120 { found = 1 } END { exit !found }'; }
eventually 30 is_wide || fail "it does not use a wider window: $(pane keys)"
term resize-window -t keys -x 20 -y 5
says keys 'iogate top'
term resize-window -t keys -x 80 -y 24
# A key that comes just when the size changes may be taken with the next key only: crossterm looks at one thing at a time.
says keys 'q leave'
term send-keys -t keys q
ends keys 0

# The server goes: that is said, and the other place goes on.
start two "$MNT" "unix:$SIDE/socket"
says two 'default|unix:'
says two 'solver'
kill -TERM "$server"
wait "$server" || fail "the server ended with status $?"
says two 'is gone'
says two 'solver .* [0-9.]+ [KM]iB/s'
term send-keys -t two C-c
ends two 0

# A signal.
start signal "$MNT"
says signal 'solver'
pid=$(pgrep -n -f -- "^$IOGATE top $MNT\$")
kill -TERM "$pid"
ends signal 0

# The mount goes.
start gone "$MNT"
says gone 'solver'
rm "$SIDE/goes-on"
wait "$writer" || true
# A look may be underway just then.
eventually 30 "$IOGATE" umount "$MNT" || fail "iogate umount failed"
gate_ends
ends gone 1
says gone "error: .*is gone"
[ "$(pane gone | grep -c error)" = 1 ] || fail "it says more than a line: $(pane gone)"
term kill-server
