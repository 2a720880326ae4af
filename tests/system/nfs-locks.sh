#!/usr/bin/env bash
# Locks by NFS, between the kernels' own clients on two machines (User-Mode Linux) and programs of the server's machine: who waits is told,
# a client that crashes loses its locks, and a server that is killed gives them back to who had them, and to nobody else.
# limit: 240
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs linux.uml mount.nfs insmod ip rpcbind rpc.statd rpcinfo unshare flock python3
[ "$(id -u)" -eq 0 ] || skip "a network of its own takes root"
needs_linux_as_program
[ -c /dev/net/tun ] || skip "there is no /dev/net/tun"
here=$(dirname "$0")
space=nfsl$$
OUT=$WORK/out
PIDS=()
end() {
    local status=$? pid
    : >"$OUT/stop"
    for pid in "${PIDS[@]}"; do
        kill -TERM "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    ip netns del "$space" 2>/dev/null || true
    clean_up "$status"
}
mkdir "$OUT" "$OUT/a" "$OUT/b"
trap end EXIT
chmod 777 "$SRC"
export PYTHONDONTWRITEBYTECODE=1

# --- The server's machine: a bridge for the clients, a port mapper, and the server, which is started again after each kill.
there() { nsenter --net="/run/netns/$space" "$@"; }
{ ip netns add "$space" && there ip link set lo up && there ip link add br0 type bridge && there ip addr add 10.99.0.1/24 dev br0 &&
    there ip link set br0 up; } || skip "a network of its own cannot be made"
cat >"$OUT/server" <<END
mount -t tmpfs tmpfs /run
rpcbind -f &
mapper=\$!
until [ -S /run/rpcbind.sock ]; do sleep 0.1; done
until [ -e "$OUT/stop" ]; do
    "$IOGATE" nfs "$SRC" --listen 10.99.0.1:2049 --allow 10.99.0.0/24 --no-root-squash --scheduler "$SCHEDULER" --portmap &
    echo \$! >"$OUT/server.pid"
    wait \$!
done
kill \$mapper
END
there setsid unshare --mount --propagation private bash "$OUT/server" >"$OUT/server.log" 2>&1 &
SERVER=$!
serves() { grep -q '^ready$' "$OUT/server.log"; }
eventually 20 serves || fail "no server: $(cat "$OUT/server.log")"
grep -q 'mountproto=tcp 10.99' "$OUT/server.log" || fail "the line to mount by says nolock: $(cat "$OUT/server.log")"

# --- The clients do what they are told, line by line, and say what came of it.
cat >"$OUT/agent" <<'END'
cp /mnt/out/lock.py /tmp/lock.py
exec python3 /tmp/lock.py /mnt/out
END
cat >"$OUT/lock.py" <<'END'
"""Does what the lines of a file say, one after the other: the answer to the Nth is in the file said.N of the same folder.

NAME lock|wait|share FIRST LENGTH | NAME unlock FIRST LENGTH | NAME flock|unflock | NAME count TIMES | end
"""
import errno, fcntl, os, sys, time

folder = sys.argv[1]
files = {}


def opened(name):
    if name not in files:
        files[name] = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
    return files[name]


def carry_out(words):
    name, what = words[:2]
    file = opened(name)
    numbers = [int(word) for word in words[2:]]
    try:
        if what == "lock":
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, numbers[1], numbers[0])
        elif what == "share":
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, numbers[1], numbers[0])
        elif what == "wait":
            fcntl.lockf(file, fcntl.LOCK_EX, numbers[1], numbers[0])
        elif what == "unlock":
            fcntl.lockf(file, fcntl.LOCK_UN, numbers[1], numbers[0])
        elif what == "flock":
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif what == "unflock":
            fcntl.flock(file, fcntl.LOCK_UN)
        elif what == "count":
            for _ in range(numbers[0]):
                fcntl.lockf(file, fcntl.LOCK_EX, 8, 0)
                value = int(os.pread(file, 20, 0) or b"0")
                os.pwrite(file, b"%d" % (value + 1), 0)
                os.fsync(file)
                fcntl.lockf(file, fcntl.LOCK_UN, 8, 0)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"


done = 0
while True:
    try:
        lines = open(folder + "/todo").read().splitlines()
    except OSError:
        lines = []
    if len(lines) <= done:
        time.sleep(0.05)
        continue
    words = lines[done].split()
    done += 1
    begun = time.monotonic()
    result = "ok" if words == ["end"] else carry_out(words)
    with open(f"{folder}/said.{done}.new", "w") as out:
        out.write(f"{result} {time.monotonic() - begun:.1f}\n")
    os.rename(f"{folder}/said.{done}.new", f"{folder}/said.{done}")
    if words == ["end"]:
        break
END
client() { # client FOLDER NUMBER
    cp "$OUT/agent" "$OUT/lock.py" "$OUT/$1"
    : >"$OUT/$1/todo"
    echo 0 >"$OUT/$1.asked"
    UML_SPACE=$space UML_NUMBER=$2 UML_LOCKS=1 UML_MEM=256M UML_TIMEOUT=220 "$here/kernel-nfs-client" '' -- "$SRC" \
        vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,timeo=50 "$OUT/$1" bash /mnt/out/agent >"$OUT/$1.log" 2>&1 &
    PIDS+=($!)
}
client a 2
client b 3
A=${PIDS[0]} B=${PIDS[1]}
PIDS+=("$SERVER")

begin() { # begin FOLDER LINE: tells a client something
    local count
    count=$(($(cat "$OUT/$1.asked") + 1))
    echo "$count" >"$OUT/$1.asked"
    echo "$2" >>"$OUT/$1/todo"
}
has_said() { [ -s "$OUT/$1/said.$(cat "$OUT/$1.asked")" ]; }
answer() { # answer FOLDER SECONDS: what the last came to
    eventually "$2" has_said "$1" || fail "client $1 says nothing to: $(tail -n 1 "$OUT/$1/todo") ($(tail -n 3 "$OUT/server.log"))"
    cut -d' ' -f1 "$OUT/$1/said.$(cat "$OUT/$1.asked")"
}
ask() { # ask FOLDER LINE EXPECTED
    begin "$1" "$2"
    local said
    said=$(answer "$1" 60)
    [ "$said" = "$3" ] || fail "client $1: $2: expected $3, got $said"
}
gone_or_said() { has_said "$1" || is_gone "$2"; }

# The first answers take as long as their kernels need.
begin a 'first lock 0 10'
begin b 'second lock 0 10'
eventually 100 gone_or_said a "$A" || true
eventually 100 gone_or_said b "$B" || true
if is_gone "$A" || is_gone "$B"; then
    status=0
    wait "$A" || status=$?
    case $status in
    120 | 121) skip "Linux does not run here as a program, or cannot mount (status $status)" ;;
    *) fail "client a ended: $(tail -n 5 "$OUT/a/console" "$OUT/a/stderr")" ;;
    esac
fi
[ "$(answer a 1) $(answer b 1)" = 'ok ok' ] || fail "no locks: $(answer a 1), $(answer b 1)"

# --- Bytes, shared and not; flock; who waits is told.
ask b 'first lock 5 10' EAGAIN
ask b 'first lock 10 10' ok
ask a 'first lock 10 1' EAGAIN
ask a 'first unlock 0 10' ok
ask b 'first lock 0 10' ok
ask b 'first unlock 0 0' ok
ask a 'first share 0 0' ok
ask b 'first share 0 0' ok
ask b 'first lock 0 0' EAGAIN
ask a 'first unlock 0 0' ok
ask b 'first lock 0 0' ok
begin a 'first wait 0 0'
sleep 1
! has_said a || fail "a lock that another client has was given: $(cat "$OUT/a/said."*)"
ask b 'first unlock 0 0' ok
said=$(answer a 10)
[ "$said" = ok ] || fail "who has waited gets $said"
ask a 'first unlock 0 0' ok
ask a 'third flock' ok
ask b 'third flock' EAGAIN
ask a 'third unflock' ok
ask b 'third flock' ok
ask b 'third unflock' ok

# --- Programs of the server's machine.
python3 - "$SRC/first" "$OUT" <<'END' &
import fcntl, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
open(sys.argv[2] + "/local", "w").close()
while not os.path.exists(sys.argv[2] + "/local.end"):
    time.sleep(0.05)
END
local=$!
PIDS+=("$local")
holds() { [ -e "$OUT/local" ]; }
eventually 10 holds || fail "a local program gets no lock"
ask a 'first lock 0 1' EAGAIN
ask a 'first lock 10 1' ok
begin a 'first wait 0 1'
sleep 1
! has_said a || fail "a lock that a local program has was given"
: >"$OUT/local.end"
said=$(answer a 10)
[ "$said" = ok ] || fail "who has waited for a local program gets $said"
wait "$local" || fail "the local program has failed"
python3 -c 'import fcntl, sys
try: fcntl.lockf(open(sys.argv[1], "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: sys.exit(0)
sys.exit("a lock that a client has was given to a local program")' "$SRC/first"
ask a 'first unlock 0 0' ok

# --- Counting together: nothing is lost.
begin a 'sum count 40'
begin b 'sum count 40'
[ "$(answer a 60) $(answer b 60)" = 'ok ok' ] || fail "counting: $(answer a 1), $(answer b 1)"
[ "$(cat "$SRC/sum")" = 80 ] || fail "two clients have counted to $(cat "$SRC/sum"), not to 80"

# --- The server is killed: who had a lock has it back, and nobody else gets it.
ask a 'first lock 0 0' ok
starts=$(grep -c '^ready$' "$OUT/server.log")
kill -KILL "$(cat "$OUT/server.pid")"
is_back() { [ "$(grep -c '^ready$' "$OUT/server.log")" -gt "$starts" ]; }
eventually 20 is_back || fail "the server does not come back: $(tail -n 3 "$OUT/server.log")"
# It waits for the end of the grace.
ask b 'first lock 0 1' EAGAIN
ask a 'first lock 0 5' ok
python3 -c 'import fcntl, sys
try: fcntl.lockf(open(sys.argv[1], "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: sys.exit(0)
sys.exit("a lock was not taken again on the file")' "$SRC/first"

# --- A client crashes, with locks: they are free when it is there again.
kernel=$(cat "/proc/$(cat "$OUT/a/uml.pid")/task/"*/children)
kill -KILL -- "-${kernel%% *}"
wait "$A" || true
begin b 'first wait 0 0'
sleep 1
! has_said b || fail "a lock of a client that is gone was given before it was known to be gone"
cat >"$OUT/notify" <<'END'
import socket, struct
def opaque(data): return struct.pack(">I", len(data)) + data + b"\0" * (-len(data) % 4)
message = struct.pack(">10I", 7, 0, 2, 100024, 1, 6, 0, 0, 0, 0) + opaque(b"client2") + struct.pack(">I", 5)
answers = []
for port in (40000, 700):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("10.99.0.2", port))
    sock.settimeout(2)
    sock.sendto(message, ("10.99.0.1", 2049))
    try:
        answers.append(len(sock.recv(100)))
    except TimeoutError:
        answers.append(None)
assert answers == [None, 24], answers
END
there ip addr add 10.99.0.2/24 dev br0
there python3 "$OUT/notify" || fail "the server does not take it that a client was started again"
said=$(answer b 20)
[ "$said" = ok ] || fail "who has waited for a client that crashed gets $said"

ask b end ok
status=0
wait "$B" || status=$?
[ "$status" -eq 0 ] || fail "client b ends with $status: $(tail -n 5 "$OUT/b/stderr")"
! grep "panicked\|defect" "$OUT/server.log" || fail "the server's log says more than it should"
