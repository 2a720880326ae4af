#!/usr/bin/env bash
# The demo aggregates what its programs read, says when each was done, and its report is one file that a browser draws. When they are done is not
# judged: that is a matter of the machine.
# limit: 90
# variants: aioli
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs jq
"$IOGATE" demo --quick --scheduler "$SCHEDULER" --html "$SIDE/report.html" --json >"$SIDE/result.json" || fail "the demo failed"
jq -r '.runs[] | "\(.device): \([.apps[] | "\(.name) \(.completion_ns / 1e6 | round) ms"] | join(", ")); " +
    "\(.gate.read.requests) requests in \(.gate.read.dispatches) dispatches"' "$SIDE/result.json"
jq -e '[.runs[].apps[].completion_ns] | length > 2 and all(.[]; . > 0)' "$SIDE/result.json" >/dev/null || fail "expected times"
jq -e '.runs | length == 2' "$SIDE/result.json" >/dev/null || fail "expected two runs: without and with scheduling"
jq -e '.runs[1].gate.read | .dispatches < .requests' "$SIDE/result.json" >/dev/null || fail "nothing was aggregated"

# The scheduler can be chosen there, too; whether it changes in so short a time is not judged.
"$IOGATE" demo --quick --scheduler auto --html "$SIDE/chosen.html" --json >"$SIDE/chosen.json" || fail "the demo with auto failed"
jq -e '[.runs[].gate | has("choice")] == [false, true]' "$SIDE/chosen.json" >/dev/null || fail "nothing says what was chosen"
refused 2 'age_max=1s' "$IOGATE" demo --quick --scheduler auto --param age_max=1s --html "$SIDE/never.html"

! grep -Eio '(src|href|url)[=(]["'\'']?(https?:)?//[^"'\'' )>]*' "$SIDE/report.html" || fail "the report needs the network"
command -v chromium >/dev/null || skip "there is no chromium to draw the report with"
timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$SIDE/browser" --enable-logging=stderr \
    --virtual-time-budget=2000 --dump-dom "file://$SIDE/report.html" >"$SIDE/drawn.html" 2>"$SIDE/browser.log" ||
    fail "the browser failed: $(tail -n 3 "$SIDE/browser.log")"
! grep -E 'CONSOLE.*(Uncaught|Error)' "$SIDE/browser.log" || fail "the report's script failed"
shapes=$(grep -oE '<(rect|path|line|circle)[ >]' "$SIDE/drawn.html" | wc -l)
[ "$shapes" -ge 50 ] || fail "the report draws $shapes shapes only"
