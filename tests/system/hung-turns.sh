#!/usr/bin/env bash
# A program that takes turns, one of whose files lies on a file system that does not answer: what it writes elsewhere goes on meanwhile.
# limit: 60
# variants: fifo fifo/page
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

coord=unix:$SIDE/socket
"$IOGATE" coord serve --listen "$coord" --state "$SIDE/state" >>"$WORK/coordinator.log" 2>&1 &
eventually 10 test -S "$SIDE/socket" || fail "the coordinator does not listen"
mount_gate
mkdir "$SIDE/data"

cat >program.py <<'END'
import os, sys, threading, time

hung, data = sys.argv[1:]
FUTEX = {"x86_64": "202", "aarch64": "98"}[os.uname().machine]


def make(path):
    return os.open(path, os.O_CREAT | os.O_RDWR)


def wait_for(condition):
    while not condition():
        time.sleep(0.01)


def write_and_wait(fd):
    """Writes in a thread, until the kernel has it wait for the file system."""
    thread = threading.Thread(target=os.write, args=(fd, bytes(1000)))
    thread.start()

    def waits():
        call = open(f"/proc/self/task/{thread.native_id}/syscall").read().split()[0]
        return call not in ("running", "-1", FUTEX)

    wait_for(waits)
    return thread


def write_elsewhere(name):
    fd = make(f"{data}/{name}")
    os.write(fd, bytes(1000))
    os.close(fd)
    os.close(make(f"{name}.done"))


# If it hangs for good, the runner ends it by this.
with open("program.pid", "w") as file:
    file.write(str(os.getpid()))
known, new = make(f"{hung}/known"), make(f"{hung}/new")
os.write(known, bytes(1000))
os.fsync(known)
os.close(make("ready"))
wait_for(lambda: os.path.exists("stopped"))
first = write_and_wait(known)
write_elsewhere("one")
second = write_and_wait(new)
write_elsewhere("two")
first.join()
second.join()
os.close(known)
os.close(new)
END
"$IOGATE" run --coord "$coord" --job all --idle 60s --target "$MNT=hung" --target "$SIDE/data=data" -- \
    python3 program.py "$MNT" "$SIDE/data" >said 2>&1 &
program=$!
eventually 30 test -e ready || fail "the program does not run: $(cat said)"
kill -STOP "$GATE_PID"
sleep 1.5 # the kernel may trust names and attributes for a second
touch stopped
eventually 30 test -e one.done || fail "a file whose place was known keeps others from being written"
eventually 30 test -e two.done || fail "a file whose place is asked for keeps others from being written"
kill -CONT "$GATE_PID"
wait "$program" || fail "the program failed: $(cat said)"
[ ! -s said ] || fail "it said: $(cat said)"
"$IOGATE" coord status --json "$coord" | python3 -c "
import json, sys
turns = json.load(sys.stdin)['finished']
bytes_at = lambda place: sorted(turn['bytes'] for turn in turns if turn['place'] == place)
assert bytes_at('data') == [1000, 1000] and sum(bytes_at('hung')) == 3000, turns" || fail "the turns are not as expected"
[ "$(stat -c %s "$MNT/known" "$MNT/new" | xargs)" = "2000 1000" ] || fail "what was written is not there"
unmount_gate
