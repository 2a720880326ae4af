# shellcheck shell=bash
# What the system tests share: a source, a mount point, mounting, and cleaning up. Sourced by each test.
#
# From the runner: WORK (the test's folder), IOGATE (the program); SCHEDULER, CACHE and TRANSPORT (of the mount).
set -euo pipefail
: "${WORK:?run this through tests/system/run}" "${IOGATE:?}" "${SCHEDULER:?}" "${CACHE:?}" "${TRANSPORT:?}"

SRC=$WORK/source # what is mounted
MNT=$WORK/mount  # where
SIDE=$WORK/side  # not on the mount
mkdir -p "$SRC" "$MNT" "$SIDE" "$SIDE/mpi.tmp"
# What Open MPI keeps while a job runs: in a folder that all share, jobs trip over each other, as one removes what the next one makes.
export OMPI_MCA_orte_tmpdir_base=$SIDE/mpi.tmp
cd "$SIDE" # fio and others leave files where they are
GATE_PID=

SCHEDULERS="fifo to-agg sjf mlf aioli hbrr app-window server-window twins"
export SCHEDULERS

fail() {
    echo "failed: $*"
    exit 1
}

skip() {
    echo "$*"
    exit 77
}

# needs PROGRAM...: skips the test where there is none of that name.
needs() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || skip "there is no $program"
    done
}

# eventually SECONDS COMMAND...: tries until the command succeeds; on a busy machine for longer than it should take.
eventually() {
    local tries=$((($1 < 60 ? 60 : $1) * 20))
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.05
    done
}

is_mounted() { mountpoint --quiet "$MNT"; }
is_unmounted() { ! findmnt --raw --noheadings --output TARGET | grep -xF -- "$MNT" >/dev/null; }
is_gone() { ! kill -0 "$1" 2>/dev/null; }

# interruptible COMMAND...: in place of a job in the background, which a script starts to ignore interrupts.
interruptible() { exec env --default-signal=INT "$@"; }

# Mounts SRC at MNT as the variant says, with the options given; GATE_PID is the mount's process.
mount_gate() {
    [ -c /dev/fuse ] || skip "there is no /dev/fuse"
    [ "$TRANSPORT" = auto ] || set -- --no-uring "$@"
    interruptible "$IOGATE" mount "$SRC" "$MNT" --scheduler "$SCHEDULER" --cache "$CACHE" -f "$@" >>"$WORK/mount.log" 2>&1 &
    GATE_PID=$!
    mounted_or_gone() { is_mounted || is_gone "$GATE_PID"; }
    eventually 10 mounted_or_gone || true
    is_mounted || fail "the mount did not come up"
}

# The mount's process ends by itself, with the exit status expected (0 unless given).
# shellcheck disable=SC2120 # it has an argument in some tests
gate_ends() {
    local status=0
    eventually 10 is_gone "$GATE_PID" || fail "the mount's process is still there"
    wait "$GATE_PID" || status=$?
    GATE_PID=
    [ "$status" -eq "${1:-0}" ] || fail "the mount's process ended with status $status instead of ${1:-0}"
}

unmount_gate() {
    "$IOGATE" umount "$MNT" || fail "iogate umount failed"
    eventually 5 is_unmounted || fail "still mounted after iogate umount"
    gate_ends
}

# refused STATUS PATTERN COMMAND...: the command fails with the exit status (`any`: other than 0) and says PATTERN,
# a case-insensitive extended regular expression, without a panic.
refused() {
    local expected=$1 pattern=$2 status=0
    shift 2
    timeout 60 "$@" >"$SIDE/refused" 2>&1 </dev/null || status=$?
    echo "\$ $*" && cat "$SIDE/refused"
    [ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "expected it to fail, and it ended with status $status"
    [ "$expected" = any ] || [ "$status" -eq "$expected" ] || fail "expected exit status $expected, got $status"
    grep -Eqi -- "$pattern" "$SIDE/refused" || fail "expected it to say '$pattern'"
    ! grep -q "panicked at" "$SIDE/refused" || fail "it panicked"
}

# clean_up [STATUS]: kills what the test started, unmounts what it mounted, and ends with the status, if given, or the one before. A test
# with an end of its own hands the status on: in a trap, too, a command that fails would end the script before this is done.
clean_up() {
    local status=${1:-$?} pid
    trap - EXIT
    exec 2>/dev/null # the shell would report each process that is killed here
    for pid in $(jobs -p); do
        kill -KILL "$pid" 2>/dev/null || true
    done
    cd /
    for _ in 1 2 3; do
        is_unmounted || umount --force "$MNT" 2>/dev/null || umount --lazy "$MNT" 2>/dev/null || true
    done
    ! mountpoint --quiet "$SRC" || umount --lazy "$SRC" || true
    exit "$status"
}
trap clean_up EXIT
trap 'exit 143' TERM INT

# Puts what is packaged into SIDE/built, without what would take long to copy: debug information, and all that is in static libraries, but functions
# of the names that shared ones are linked from.
built_small() {
    local file crates
    crates=$(dirname "$0")/../../crates
    mkdir "$SIDE/built"
    for file in "$IOGATE" "${IOGATE%/*}"/libiogate_*.so; do strip -o "$SIDE/built/${file##*/}" "$file"; done
    printf '!<arch>\n' >"$SIDE/built/libiogate_turn.a"
    for file in gate agios; do
        sed -n 's/^ *\([a-z_]*\);$/void \1(void) {}/p' "$crates/iogate-$file/iogate_$file.map" | cc -fPIC -x c -c -o "$SIDE/$file.o" -
        ar rcD "$SIDE/built/libiogate_$file.a" "$SIDE/$file.o"
    done
}

# packaged FORMAT FOLDER REVISION: packages of what `built_small` has left.
packaged() {
    OUT=$SIDE/$2 REVISION=$3 "$(dirname "$0")/../../scripts/package" "$1" --built "$SIDE/built" >"$SIDE/said" 2>&1 ||
        fail "no packages: $(tail -n 3 "$SIDE/said")"
}

# packaged_twice FORMAT PATTERN...: packages in the folder `once`, of which each pattern names some, and which are the same bytes again.
packaged_twice() {
    local format=$1 name
    shift
    # Fast, and small: the real ones are compressed.
    export COMPRESS=none SOURCE_DATE_EPOCH=1700000000
    built_small
    packaged "$format" once 1
    packaged "$format" again 1
    for name in "$@"; do
        compgen -G "$SIDE/once/$name" >/dev/null || fail "there is no package $name: $(ls "$SIDE/once")"
    done
    for name in "$SIDE/once"/*; do
        cmp "$name" "$SIDE/again/${name##*/}" || fail "it is not the same twice: $name"
    done
    rm -rf "$SIDE/again"
}

# mpi_is_found ROOT FOLDER: each library for an MPI that is installed into a folder of ROOT is also beside the one that looks for it there.
mpi_is_found() {
    local library
    while read -r library; do
        [ "$1/usr/lib/iogate/${library##*/}" -ef "$library" ] || fail "MPI programs do not find ${library##*/}: $(ls -l "$1/usr/lib/iogate")"
    done < <(find "$1/$2" -name 'libiogate_mpi*.so')
}

# needs_linux_as_program: skips the test where User-Mode Linux cannot run any program. Debian's does not know how many registers the newest
# processors have (AMX), and its first program ends at once.
needs_linux_as_program() {
    local console=$SIDE/first-program uml
    needs linux.uml unshare
    timeout --kill-after=1 60 unshare --pid --fork --kill-child linux.uml mem=64M rootfstype=hostfs rootflags=/ ro init=/bin/true \
        "uml_dir=$SIDE/" con=null con0=fd:0,fd:1 quiet </dev/null >"$console" 2>&1 &
    uml=$!
    first_program_ended() { grep -q 'Attempted to kill init' "$console" || is_gone "$uml"; }
    eventually 60 first_program_ended || true
    kill "$uml" 2>/dev/null || true
    wait "$uml" || true
    if grep -qE 'fp regs failed|exitcode=0x0000000b' "$console"; then
        skip "Linux does not run here as a program: $(grep -m 1 -E 'failed, errno|panic' "$console")"
    fi
}

# serve_source: a server of SRC at unix:$WORK/socket, which keeps what is a client's for 4 s, or GRACE; again, if it was there before. `server` is its process.
# shellcheck disable=SC2034 # tests use it
serve_source() {
    cat >"$WORK/server.toml" <<END
session_grace = "${GRACE:-4s}"
[[listen]]
at = "unix:$WORK/socket"
[[export]]
directory = "$SRC"
gate = { scheduler = "$SCHEDULER" }
users = { squash = "none" }
END
    "$IOGATE" serve "$WORK/server.toml" >"$WORK/server.out" 2>>"$WORK/server.log" &
    server=$!
    eventually 10 grep -q '^ready$' "$WORK/server.out" || fail "the server does not start: $(cat "$WORK/server.log")"
}

# one_database ROWS PLACE...: programs at all places, which show one directory, write one SQLite database at once, each so many rows. What is read decides
# what is written: without locks some would be lost, or the file damaged.
one_database() {
    local rows=$1 place pid pids=()
    shift
    cat >"$SIDE/inserts.py" <<'END'
import sqlite3, sys

database = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for number in range(int(sys.argv[2])):
    database.execute("BEGIN IMMEDIATE")
    (count,) = database.execute("SELECT count(*) FROM rows").fetchone()
    database.execute("INSERT INTO rows VALUES (?)", (count,))
    database.execute("COMMIT")
END
    python3 -c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute("CREATE TABLE rows (number INTEGER PRIMARY KEY)")' "$1/database"
    for place in "$@"; do
        python3 "$SIDE/inserts.py" "$place/database" "$rows" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || fail "a database is not written"; done
    python3 - "$1/database" $((rows * $#)) <<'END' || fail "a database is damaged"
import sqlite3, sys

database = sqlite3.connect(sys.argv[1])
assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
assert [number for (number,) in database.execute("SELECT number FROM rows ORDER BY number")] == list(range(int(sys.argv[2])))
END
}

# needs_machines: skips the test where tests/system/systemd-machine cannot boot, or no packages can be made for it.
needs_machines() {
    needs linux.uml insmod ip mkfs.ext4 dbus-daemon setpriv dpkg dpkg-deb dpkg-shlibdeps cc ar strip
    [ -x /lib/systemd/systemd ] || skip "there is no systemd"
    [ "$(id -u)" -eq 0 ] || skip "booting a machine with this one's files takes root"
    ! dpkg-query --show iogate >/dev/null 2>&1 || skip "iogate is installed here"
    needs_linux_as_program
}

# package_for FOLDER: the Debian package of the program, of what `built_small` has left.
package_for() {
    packaged deb package 1
    mkdir -p "$1"
    mv "$SIDE/package"/iogate_*.deb "$1"
    rm -r "$SIDE/package"
}
