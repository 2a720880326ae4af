#!/usr/bin/env bash
# The live page of a mount and of a server, in a real browser: what it shows, that names stay text, and who may not ask.
# limit: 90
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs curl jq python3
mount_gate --http 127.0.0.1:0 --fair app
url=$("$IOGATE" status "$MNT" --json | jq -r '.about[] | select(.[0] == "page") | .[1]')
[[ "$url" =~ ^http://127\.0\.0\.1:[0-9]+/$ ]] || fail "status says of the page: '$url'"
evil='<script>document.title="broken"</script><img src=x onerror="document.title=1">'
touch "$SIDE/goes-on"
while [ -e "$SIDE/goes-on" ]; do
    IOGATE_APP=solver dd if=/dev/zero of="$MNT/a" bs=64k count=16 conv=notrunc status=none
    IOGATE_APP=$evil dd if="$MNT/a" of=/dev/null bs=64k count=16 status=none
done &
writer=$!

# By curl: events come again and again, each one is JSON, and nothing but reading is answered.
is_told() {
    # The time limit is how it ends.
    curl -sS -N --max-time 3 "${url}events" 2>/dev/null | sed -n 's/^data: //p' >"$SIDE/events"
    jq -es --arg name "$evil" 'length >= 2 and (.[-1].gates[0].apps | map(.name) | contains(["solver", $name]))' "$SIDE/events" >/dev/null
}
eventually 30 is_told || fail "events: $(cat "$SIDE/events")"
jq -es '.[-1].gates[0].apps[] | select(.name == "solver") | .written > 0 and .class.entitled_percent > 0' "$SIDE/events" >/dev/null ||
    fail "no rates: $(tail -n 1 "$SIDE/events")"
code() { curl -sS --max-time 30 -o /dev/null -w '%{http_code}' "$@"; }
for method in POST PUT DELETE OPTIONS; do
    [ "$(code -X "$method" "$url")" = 405 ] || fail "$method is answered"
done
[ "$(code -H 'Host: evil.example' "${url}events")" = 421 ] || fail "it answers to any name"
curl -sS --max-time 30 -D "$SIDE/head" -o /dev/null -H 'Origin: http://evil.example' "$url"
! grep -i '^Access-Control' "$SIDE/head" || fail "other pages may read it"
grep -i "^Content-Security-Policy: default-src 'none'" "$SIDE/head" >/dev/null || fail "$(cat "$SIDE/head")"

# A name as long as an environment allows takes nobody's status.
IOGATE_APP=$(head -c 100000 /dev/zero | tr '\0' x) dd if="$MNT/a" of=/dev/null bs=64k count=16 status=none
"$IOGATE" status "$MNT" >/dev/null || fail "a long name is too much for the status"

# In a browser.
if command -v chromium >/dev/null; then
    python3 "$(dirname "$0")/live_page.py" "$url" "$evil" "$SIDE/page.png" "$IOGATE" set "$MNT" fair=group/user || fail "the page is not as it should be"
fi
rm "$SIDE/goes-on"
wait "$writer" || true
unmount_gate

# A server, on a socket. An address that others reach is said.
"$IOGATE" serve --directory "$SRC" --listen "unix:$SIDE/socket" --http "unix:$SIDE/http" >"$SIDE/serve" 2>&1 &
server=$!
is_ready() { grep -qsx ready "$SIDE/serve"; }
eventually 10 is_ready || fail "the server is not ready: $(cat "$SIDE/serve")"
! grep -i warning "$SIDE/serve" || fail "a socket is no reason for a warning"
# The first event is there at once; the time limit is how it ends.
curl -sS -N --max-time 3 --unix-socket "$SIDE/http" http://any/events >"$SIDE/events" 2>/dev/null || true
sed -n 's/^data: //p' "$SIDE/events" | jq -es '.[0].gates[0].gate == "default"' >/dev/null ||
    fail "a server says: $(cat "$SIDE/events")"
[ "$(code --unix-socket "$SIDE/http" http://any/)" = 200 ] || fail "a server has no page"
kill -TERM "$server"
wait "$server" || fail "the server ended with status $?"
[ ! -e "$SIDE/http" ] || fail "the socket is still there"
"$IOGATE" serve --directory "$SRC" --listen "unix:$SIDE/socket" --http 0.0.0.0:0 >"$SIDE/other" 2>&1 &
server=$!
is_other_ready() { grep -qsx ready "$SIDE/other"; }
eventually 10 is_other_ready || fail "the server is not ready: $(cat "$SIDE/other")"
grep 'warning: --http 0.0.0.0:.* is not loopback' "$SIDE/other" >/dev/null || fail "it is not said: $(cat "$SIDE/other")"
kill -TERM "$server"
wait "$server" || fail "the server ended with status $?"
command -v chromium >/dev/null || skip "there is no chromium to draw the page with"
