#!/usr/bin/env bash
# Advice on what was recorded at a real mount, and on a trace in the form that Darshan's logs come in; what is no such trace is refused.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs fio jq
mount_gate
"$IOGATE" record "$MNT" --out "$SIDE/trace.csv" >"$SIDE/record.log" 2>&1 &
recorder=$!
eventually 10 grep -q '^recording' "$SIDE/record.log" || fail "nothing is recorded"
# Two applications, each with a file of its own, in pieces that follow each other.
for app in 1 2; do
    IOGATE_APP=$app fio --name="app-$app" --directory="$MNT" --ioengine=psync --rw=read --bs=16k --size=4m --output="$SIDE/fio-$app.out" &
    readers[app]=$!
done
for app in 1 2; do wait "${readers[app]}" || fail "reader $app failed"; done
kill -TERM "$recorder"
eventually 10 is_gone "$recorder" || fail "the recording goes on"
wait "$recorder" || fail "the recording failed: $(cat "$SIDE/record.log")"
unmount_gate
rows=$(($(wc -l <"$SIDE/trace.csv") - 1))
[ "$rows" -ge 512 ] || fail "the trace has $rows requests only"

advice() { "$IOGATE" advise "$@" --json >"$SIDE/advice.json" || fail "no advice: $*"; }
holds() { jq -e "$@" "$SIDE/advice.json" >/dev/null || fail "expected $* of $(jq -c . "$SIDE/advice.json")"; }
for device in hdd memory; do
    advice "$SIDE/trace.csv" --device $device --depth 4
    holds --argjson rows "$rows" '.requests == $rows and .left_out == 0 and .closed_loop'
    # fifo is what the others are compared with; who harms somebody is never first, as fifo harms nobody.
    holds '[.schedulers[] | select(.scheduler == "fifo") | .gain, .slowest] == [1, 1]'
    holds '.schedulers[0].harms == false and .schedulers[0].gain >= 1 and (.schedulers | length) > 5'
    holds '[.schedulers[] | select(.harms | not).gain] | . == (sort | reverse)'
done
"$IOGATE" profile --device hdd --out "$SIDE/hdd.toml" >/dev/null || fail "no profile"
advice "$SIDE/trace.csv" --device "profile:$SIDE/hdd.toml"
"$IOGATE" advise "$SIDE/trace.csv" >"$SIDE/advice" || fail "no advice as a table"
grep -q '^advice: ' "$SIDE/advice" || fail "the table does not end with the advice"
! grep -q 'done_us' "$SIDE/advice" || fail "it does not see when requests were over"

# As `python -m iogate.darshan` writes it: names of files, fractions of microseconds, no completions.
{
    echo "time_us,app,client,file,op,offset,bytes"
    for piece in $(seq 0 199); do
        for rank in 1 2 3 4; do
            echo "$((piece * 400 + rank)).$((rank * 125)),32324925,$rank,/scratch/part-$rank.h5,r,$((piece * 65536)),65536"
        done
    done
} >"$SIDE/darshan.csv"
advice "$SIDE/darshan.csv" --device hdd
holds '.requests == 800 and (.closed_loop | not) and .schedulers[0].gain > 1'
"$IOGATE" advise - --device hdd <"$SIDE/darshan.csv" | grep 'note: .*done_us' >/dev/null || fail "it does not say what the trace lacks"

echo "== what is no such trace"
cut -d , -f 1,2,4- "$SIDE/darshan.csv" >"$SIDE/bad.csv"
refused 2 'bad.csv: line 1.*expected.*client' "$IOGATE" advise "$SIDE/bad.csv"
head -n 1 "$SIDE/darshan.csv" >"$SIDE/bad.csv"
refused 2 'bad.csv: the trace has no rows' "$IOGATE" advise "$SIDE/bad.csv"
head -c 4096 /dev/urandom >"$SIDE/bad.csv"
refused 2 'bad.csv: line 1' "$IOGATE" advise "$SIDE/bad.csv"
sed '1s/$/,target/; 2,$s/$/,1/' "$SIDE/darshan.csv" >"$SIDE/bad.csv"
refused 2 'bad.csv: row 1 is of target 1: expected' "$IOGATE" advise "$SIDE/bad.csv"
refused 2 'nowhere.csv cannot be read' "$IOGATE" advise "$SIDE/nowhere.csv"
refused 2 "unknown device 'hdx'" "$IOGATE" advise "$SIDE/darshan.csv" --device hdx
refused 2 'the profile .*none.toml' "$IOGATE" advise "$SIDE/darshan.csv" --device "profile:$SIDE/none.toml"
refused 1 'no-mount' "$IOGATE" record "$SIDE/no-mount" --out "$SIDE/never.csv"
