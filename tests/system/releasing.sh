#!/usr/bin/env bash
# A turn that is being given back is over for all threads of its program: what another one writes meanwhile waits for the next turn.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

coord=unix:$SIDE/socket
"$IOGATE" coord serve --listen "$coord" --state "$SIDE/state" >>"$WORK/coordinator.log" 2>&1 &
coordinator=$!
eventually 10 test -S "$SIDE/socket" || fail "the coordinator does not listen"
mkdir "$SIDE/data"

cat >program.py <<'END'
import os, sys, threading, time

coordinator, data = int(sys.argv[1]), sys.argv[2]
FUTEX, CLOSE = {"x86_64": ("202", "3"), "aarch64": ("98", "57")}[os.uname().machine]


def start(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    return thread


def wait_for(condition):
    while not condition():
        time.sleep(0.01)


def asks(thread):
    """Whether it waits for an answer of the coordinator, or is done."""
    try:
        call = open(f"/proc/self/task/{thread.native_id}/syscall").read().split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return call not in ("running", "-1", FUTEX, CLOSE)


first, second = (os.open(f"{data}/{name}", os.O_CREAT | os.O_WRONLY) for name in ("first", "second"))
os.write(first, bytes(1000))
os.kill(coordinator, 19)
ends = start(os.close, first)
wait_for(lambda: asks(ends))
writes = start(os.write, second, bytes(1000))
# On a slow machine it may not even have begun by then: that finds nothing, and fails for nothing.
time.sleep(0.3)
written = os.stat(second).st_size
os.kill(coordinator, 18)
ends.join()
writes.join()
os.close(second)
assert written == 0, f"{written} B were written without a turn"
END
"$IOGATE" run --coord "$coord" --job all --idle 60s --target "$SIDE/data=data" -- \
    python3 program.py "$coordinator" "$SIDE/data" >said 2>&1 || fail "the program failed: $(cat said)"
[ ! -s said ] || fail "it said: $(cat said)"
"$IOGATE" coord status --json "$coord" | python3 -c "
import json, sys
turns = json.load(sys.stdin)['finished']
assert [turn['bytes'] for turn in turns] == [1000, 1000], turns" || fail "the turns are not as expected"
