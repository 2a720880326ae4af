#!/usr/bin/env bash
# What a mount and a server tell monitoring: by curl, by promtool, and to a real Prometheus, which scrapes and answers.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs curl jq promtool prometheus
mount_gate --metrics 127.0.0.1:0
IOGATE_APP=4711 dd if=/dev/zero of="$MNT/a" bs=64k count=32 status=none
url=$("$IOGATE" status "$MNT" --json | jq -r '.about[] | select(.[0] == "metrics") | .[1]')
[[ "$url" =~ ^http://127\.0\.0\.1:[0-9]+/metrics$ ]] || fail "status says of the endpoint: '$url'"

curl -sS --max-time 30 -D "$SIDE/head" -H 'Accept: application/openmetrics-text; version=1.0.0' "$url" >"$SIDE/open"
grep -q '^Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8' "$SIDE/head" || fail "$(cat "$SIDE/head")"
[ "$(tail -n 1 "$SIDE/open")" = "# EOF" ] || fail "the text has no end: $(tail -n 3 "$SIDE/open")"
bytes=$((32 * 65536))
grep -qxF "iogate_app_request_bytes_total{gate=\"$MNT\",app=\"4711\"} $bytes" "$SIDE/open" ||
    fail "4711 has written $bytes bytes, and not: $(grep app_request_bytes "$SIDE/open")"
curl -sS --max-time 30 -D "$SIDE/head" "$url" >"$SIDE/plain"
grep -q '^Content-Type: text/plain; version=0.0.4' "$SIDE/head" || fail "$(cat "$SIDE/head")"
"$IOGATE" status "$MNT" --prometheus >"$SIDE/file"
for text in plain file; do
    promtool check metrics <"$SIDE/$text" || fail "promtool does not like $text"
done
"$IOGATE" status "$MNT" --openmetrics >"$SIDE/file"
[ "$(grep '_app_request_bytes_total' "$SIDE/file")" = "$(grep '_app_request_bytes_total' "$SIDE/open")" ] ||
    fail "status says other than the endpoint: $(cat "$SIDE/file")"
[ "$(curl -sS --max-time 30 -o /dev/null -w '%{http_code}' "${url%metrics}nothing")" = 404 ] || fail "all is found"

# A server, on a Unix socket, with a client.
"$IOGATE" serve --directory "$SRC" --listen "unix:$SIDE/socket" --metrics "unix:$SIDE/metrics" >"$SIDE/serve" 2>&1 &
server=$!
is_ready() { grep -qsx ready "$SIDE/serve"; }
eventually 10 is_ready || fail "the server is not ready: $(cat "$SIDE/serve")"
grep -qxF "metrics at unix:$SIDE/metrics" "$SIDE/serve" || fail "$(cat "$SIDE/serve")"
curl -sS --max-time 30 --unix-socket "$SIDE/metrics" http://localhost/metrics >"$SIDE/plain"
promtool check metrics <"$SIDE/plain" || fail "promtool does not like what a server says"
grep -q '^iogate_requests_total{gate="default",op="read"} 0$' "$SIDE/plain" || fail "$(cat "$SIDE/plain")"
"$IOGATE" status "unix:$SIDE/socket" --openmetrics | grep '^iogate_server_connections 1$' >/dev/null ||
    fail "status of a server has no connection of its own"
kill -TERM "$server"
wait "$server" || fail "the server ended with status $?"
[ ! -e "$SIDE/metrics" ] || fail "the socket is still there"

# A real Prometheus, on a port that is free.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
target=${url#http://}
cat >"$SIDE/prometheus.yml" <<END
global: { scrape_interval: 1s, scrape_timeout: 1s }
scrape_configs: [{ job_name: iogate, static_configs: [{ targets: ["${target%/metrics}"] }] }]
END
prometheus --config.file="$SIDE/prometheus.yml" --storage.tsdb.path="$WORK/tsdb" --web.listen-address="127.0.0.1:$port" \
    >"$SIDE/prometheus.log" 2>&1 &
prometheus=$!
asked() { curl -sSG --max-time 10 "http://127.0.0.1:$port/api/v1/$1" "${@:2}" 2>/dev/null; }
is_up() { asked targets | jq -e '.data.activeTargets | length == 1 and .[0].health == "up"' >/dev/null; }
eventually 30 is_up || fail "the target is not up: $(asked targets) $(tail -n 5 "$SIDE/prometheus.log")"
has() {
    asked query --data-urlencode "query=$1" | jq -e --arg value "$2" '.data.result | length == 1 and .[0].value[1] == $value' >/dev/null
}
query='iogate_app_request_bytes_total{app="4711"}'
eventually 30 has "$query" "$bytes" || fail "Prometheus does not say $bytes: $(asked query --data-urlencode "query=$query")"
IOGATE_APP=4711 dd if="$MNT/a" of=/dev/null bs=64k count=32 status=none
eventually 30 has "$query" $((2 * bytes)) || fail "it does not grow: $(asked query --data-urlencode "query=$query")"
requests=$(sed -n 's/^iogate_waiting_seconds_count{.*op="write"} //p' "$SIDE/open")
eventually 30 has 'iogate_waiting_seconds_bucket{op="write",le="+Inf"}' "$requests" || fail "the histogram is not read"
asked metadata | jq -e '.data.iogate_app_request_bytes[0] | .type == "counter" and .unit == "bytes"' >/dev/null ||
    fail "it was not read as OpenMetrics: $(asked metadata)"
# The dashboard asks it nothing that it does not understand, and it has answers; the alerts do what they say.
packaging=$(cd "$(dirname "$0")/../../packaging" && pwd)
asks=0
while IFS= read -r expression; do
    asked query --data-urlencode "query=$expression" >"$SIDE/answer" || fail "Prometheus does not take: $expression"
    jq -e '.status == "success"' "$SIDE/answer" >/dev/null || fail "$expression: $(cat "$SIDE/answer")"
    asks=$((asks + 1))
done < <(jq -r '.panels[].targets[].expr' "$packaging/grafana/iogate.json" |
    sed 's/\$__rate_interval/1m/g; s/\$instance/.*/g; s/\$gate/.*/g')
[ "$asks" -gt 20 ] || fail "the dashboard asks $asks times only"
# By name, of the application that has written.
rate=$(jq -r '.panels[0].targets[0].expr' "$packaging/grafana/iogate.json" | sed 's/rate(\(.*\)\[\$__rate_interval\])/(\1)/; s/\$instance/.*/g; s/\$gate/.*/g')
is_named() {
    asked query --data-urlencode "query=$rate" |
        jq -e --arg value $((2 * bytes)) '.data.result | any(.metric.name == "4711" and .value[1] == $value)' >/dev/null
}
eventually 30 is_named || fail "the dashboard names nobody: $rate"
promtool check rules "$packaging/prometheus/alerts.yml" || fail "the alerts are not right"
promtool test rules "$packaging/prometheus/alerts.test.yml" || fail "the alerts do not do what they say"

# A policy: its classes and groups have series, and no one twice.
! grep -E '^iogate_(class|group)_' "$SIDE/open" || fail "there are classes without a policy"
printf 'by = "user"\n[group.%s]\nweight = 3\nmax = "1GiB/s"\n' "$(id -g)" >"$SIDE/policy.toml"
"$IOGATE" set "$MNT" "policy=$SIDE/policy.toml" || fail "the policy cannot be set"
dd if=/dev/zero of="$MNT/b" bs=64k count=4 status=none
curl -sS --max-time 30 "$url" >"$SIDE/plain"
promtool check metrics <"$SIDE/plain" || fail "promtool does not like the series of a policy"
group=$(sed -n "s/^iogate_group_info{gate=\"[^\"]*\",group=\"\([0-9]*\)\".*/\1/p" "$SIDE/plain")
for line in "weight{gate=\"$MNT\",group=\"$group\"} 3" "cap_bytes_per_second{gate=\"$MNT\",group=\"$group\"} $((1 << 30))" \
    "request_bytes_total{gate=\"$MNT\",group=\"$group\"} $((4 * 65536))"; do
    grep -qxF "iogate_group_$line" "$SIDE/plain" || fail "no $line: $(grep iogate_group "$SIDE/plain")"
done
grep -q "^iogate_class_info{.*group=\"$group\"} 1$" "$SIDE/plain" || fail "no class of the group: $(grep iogate_class "$SIDE/plain")"
eventually 30 has 'iogate_group_weight * on (instance, gate, group) group_left (name) iogate_group_info' 3 || fail "Prometheus has no group"
kill -TERM "$prometheus"
eventually 30 is_gone "$prometheus" || fail "Prometheus goes on"
unmount_gate
