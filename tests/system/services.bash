# shellcheck shell=bash
# What tests/system/services.sh does in the machine that it boots, as an administrator who follows docs/install.md: services.bash first|again.
# The two are boots of the same machine. /out has the packages, and the commands of pages.
set -euo pipefail

step() { echo "== $* ($(cut -d. -f1 /proc/uptime) s)"; }
fail() {
    echo "failed: $*"
    journalctl --boot --no-pager --lines=60 --unit='iogate-*' || true
    exit 1
}
# eventually COMMAND...: within a time that is not judged.
eventually() {
    local end=$((SECONDS + 60))
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.4
    done
}
said() { "$@" >/tmp/said 2>&1 || fail "$*: $(cat /tmp/said)"; }
runs() { [ "$(systemctl is-active "$1")" = active ] || fail "$1 does not run: $(systemctl status --no-pager "$1")"; }
process() { systemctl show --property=MainPID --value "$1"; }
as_user() { setpriv --reuid=1234 --regid=1234 --clear-groups "$@"; }
services=(iogate-mount@data iogate-mount@remote iogate-serve@data iogate-nfs@example iogate-coord)
server=unix:/run/iogate/serve/data/socket
export IOGATE_COORD=unix:/run/iogate/coord/socket

installed() {
    step 'packages'
    said dpkg --force-unsafe-io --install /out/once/*.deb
    getent passwd iogate >/dev/null || fail 'there is no user for the coordinator'
    [ "$(stat -c '%U %a' /run/iogate)" = 'root 755' ] || fail "/run/iogate: $(stat /run/iogate)"
    [ -z "$(systemctl --plain --no-legend list-units 'iogate-*')" ] || fail 'something runs that nobody has asked for'
}

# in_group PLACE: a user makes a file where only one of his other groups may.
in_group() {
    install -d -o root -g 5000 -m 2770 "/srv/data/group-$1"
    setpriv --reuid=1234 --regid=1234 --groups=5000 sh -c "echo ours >/mnt/$1/group-$1/ours" || fail "a user's group does not count in $1"
    [ "$(stat -c %u:%g "/srv/data/group-$1/ours")" = 1234:5000 ] || fail "another owner: $(stat "/srv/data/group-$1/ours")"
}

# makes_nodes PLACE: root makes there what unpacking a system makes.
makes_nodes() {
    mkfifo "/mnt/$1/fifo-$1" && mknod "/mnt/$1/char-$1" c 1 3 && mknod "/mnt/$1/block-$1" b 7 0 || fail "root makes no device nodes in $1"
    [ "$(stat -c %t:%T "/srv/data/block-$1")" = 7:0 ] || fail "another device: $(ls -l /srv/data)"
    rm "/mnt/$1"/{fifo,char,block}-"$1"
}

mounted() {
    step 'a mount by hand becomes a service, as pages print it'
    mkdir -p /srv/data /mnt/gate
    said iogate mount /srv/data /mnt/gate
    said bash -ex /out/disk-server.page
    said bash -ex /out/install.page
    grep -q 'Active: active (running)' /tmp/said || fail "systemctl status: $(cat /tmp/said)"
    grep -q 'Status: "' /tmp/said || fail "systemctl status does not have the service's own words: $(cat /tmp/said)"
    mkdir -m 1777 /mnt/gate/all
    as_user sh -c 'echo theirs >/mnt/gate/all/theirs'
    [ "$(cat /srv/data/all/theirs) $(stat -c %u:%g /srv/data/all/theirs)" = 'theirs 1234:1234' ] || fail 'a user does not write in his name'
    in_group gate
    makes_nodes gate
}

served() {
    step 'a server, and a mount of what it serves'
    cat >/etc/iogate/serve/data.toml <<END
[[listen]]
at = "$server"
auth = "peer"

[[export]]
directory = "/srv/data"
forwarders = ["root"]
users = { squash = "none" }
END
    printf '%s\n' MOUNTPOINT=/mnt/remote "OPTIONS=--remote $server" >/etc/iogate/mount/remote.conf
    mkdir /mnt/remote
    said systemctl enable iogate-mount@remote
    systemctl start iogate-mount@remote &
    local starting=$!
    eventually waits_for_its_server || fail 'a mount does not say that it waits for its server'
    [ "$(systemctl is-active iogate-mount@remote)" = activating ] || fail 'a mount comes up before its server'
    said systemctl enable --now iogate-serve@data
    said iogate status "$server"
    wait "$starting" || fail 'a mount does not wait for its server'
    as_user sh -c 'echo far >/mnt/remote/all/far'
    [ "$(cat /mnt/gate/all/far) $(stat -c %u /srv/data/all/far)" = 'far 1234' ] || fail 'a user of a server does not write in his name'
    in_group remote
    makes_nodes remote
    setfattr -n trusted.iogate -v x /mnt/remote/all/far || fail 'root has no attributes of his own'
}

waits_for_its_server() { journalctl --no-pager --unit=iogate-mount@remote | grep 'waits for at most' >/dev/null; }

nfs_mounted() {
    local modules module
    modules=$(echo /usr/lib/uml/modules/*/kernel)
    for module in net/sunrpc/sunrpc fs/nfs_common/grace fs/lockd/lockd fs/nfs_common/nfs_acl fs/netfs/netfs fs/fscache/fscache \
        net/dns_resolver/dns_resolver fs/nfs/nfs fs/nfs/nfsv3; do insmod "$modules/$module.ko" || fail "$module"; done
    mkdir -p /mnt/nfs
    said mount -t nfs -o vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,nolock 127.0.0.1:/srv/data /mnt/nfs
}

nfs_served() {
    step 'a server for NFS clients, and the kernel of this machine as one'
    said systemctl enable --now iogate-nfs@example
    nfs_mounted
    as_user sh -c 'echo nfs >/mnt/nfs/all/nfs'
    [ "$(cat /srv/data/all/nfs) $(stat -c %u /srv/data/all/nfs)" = 'nfs 1234' ] || fail 'an NFS client does not write in its name'
}

coordinated() {
    step 'a coordinator, and a turn of a user'
    said systemctl enable --now iogate-coord
    [ "$(stat -c '%U %a' /var/lib/iogate/coord)" = 'iogate 700' ] || fail "its state: $(stat /var/lib/iogate/coord)"
    grep -qF "$(cat /proc/sys/kernel/random/boot_id)" /var/lib/iogate/coord/reserve || fail 'it does not know when the machine was started'
    local blind=(--quiet --wait --pipe --property=ProcSubset=pid --property=RuntimeMaxSec=20)
    ! systemd-run "${blind[@]}" iogate coord serve --listen unix:/run/blind --state /srv/blind >/tmp/said 2>&1 || fail 'it serves where it cannot know'
    grep -q 'cannot read /proc/sys/kernel/random/boot_id' /tmp/said || fail "it does not say what lacks: $(cat /tmp/said)"
    said as_user iogate run --target /mnt/gate/all=scratch -- sh -c 'echo turn >/mnt/gate/all/turn'
    [ "$(iogate coord status --json "$IOGATE_COORD" | jq '.finished | length')" = 1 ] || fail 'there was no turn'
}

# brought_back UNIT: killed, it runs again as another process.
brought_back() {
    local before
    before=$(process "$1")
    kill -KILL "$before"
    eventually is_another "$1" "$before" || fail "$1 does not come back"
}
is_another() { [ "$(systemctl is-active "$1")" = active ] && [ "$(process "$1")" != "$2" ]; }

killed() {
    step 'what was killed comes back'
    (for i in $(seq 40); do echo "$i" && sleep 0.2; done) >/mnt/remote/all/lines &
    local writer=$!
    for unit in iogate-serve@data iogate-nfs@example iogate-coord iogate-mount@data; do brought_back "$unit"; done
    wait "$writer" || fail 'a program has not outlived the server that it writes to'
    [ "$(wc -l </srv/data/all/lines)" = 40 ] || fail "of 40 lines there are $(wc -l </srv/data/all/lines)"
    [ "$(cat /mnt/gate/all/theirs /mnt/nfs/all/theirs)" = $'theirs\ntheirs' ] || fail 'a file is not there any more'
    iogate coord status "$IOGATE_COORD" >/dev/null || fail 'the coordinator is not there any more'
    brought_back iogate-mount@remote
    [ "$(cat /mnt/remote/all/far)" = far ] || fail 'the mount of the server is not there any more'
}

stopped() {
    step 'a mount is stopped while a program uses it'
    exec 5>/mnt/gate/all/held
    echo before >&5
    systemctl stop iogate-mount@data 5>&- &
    local stopping=$!
    eventually is_taken_off /mnt/gate || fail 'it is still mounted'
    echo after >&5 || fail 'what a program holds does not work any more'
    kill -0 "$stopping" 2>/dev/null || fail 'it does not wait for who uses it'
    exec 5>&-
    wait "$stopping" || fail 'it cannot be stopped'
    [ "$(systemctl is-active iogate-mount@data)" = inactive ] || fail "$(systemctl status --no-pager iogate-mount@data)"
    [ "$(cat /srv/data/all/held)" = $'before\nafter' ] || fail "what was written: $(cat /srv/data/all/held)"
    said systemctl start iogate-mount@data
    mountpoint --quiet /mnt/gate || fail 'it is not mounted again'
}
is_taken_off() { ! mountpoint --quiet "$1"; }

wrong() {
    step 'what is wrong is said, and right once it is mended'
    echo 'no = "such key"' >/etc/iogate/serve/wrong.toml
    ! systemctl start iogate-serve@wrong 2>/dev/null || fail 'a wrong file serves'
    journalctl --no-pager --unit=iogate-serve@wrong | grep 'unknown field' >/dev/null || fail 'the journal does not say what is wrong'
    sed s/example/wrong/ /etc/iogate/serve/example.toml >/etc/iogate/serve/wrong.toml
    eventually systemctl --quiet is-active iogate-serve@wrong || fail 'a file that was mended does not serve'
    said systemctl stop iogate-serve@wrong
    ! systemctl start iogate-mount@none 2>/tmp/said || fail 'a mount without a file starts'
}

# Acknowledged lines are also in a file beside it, which the next boot compares.
shut_down() {
    step 'this machine is shut down under programs that write'
    # shellcheck disable=SC2016 # the writer's own
    echo 'for ((i = 0; ; i++)); do echo $i >>"/mnt/$1/all/writer-$1" && echo $i >>"/srv/writer-$1"; sleep 0.3; done' >/run/writer
    for place in gate remote nfs; do
        systemd-run --quiet --unit="writer-$place" bash /run/writer "$place"
        eventually test -s "/srv/writer-$place" || fail "nobody writes to $place"
    done
}

first() {
    installed
    mounted
    served
    nfs_served
    coordinated
    killed
    stopped
    wrong
    shut_down
}

booted() {
    step 'the next boot has it all'
    for unit in "${services[@]}"; do eventually systemctl --quiet is-active "$unit" || runs "$unit"; done
    [ "$(cat /mnt/gate/all/theirs /mnt/remote/all/theirs)" = $'theirs\ntheirs' ] || fail 'a file is not there any more'
    # What requires a service that fails first, and is started again, is not started.
    journalctl --boot --no-pager --unit='iogate-*' >/tmp/boot
    ! grep -E 'error: |Failed with result|Scheduled restart' /tmp/boot || fail 'a service fails at first when the machine boots'
    for place in gate remote nfs; do
        diff <(head -n "$(wc -l <"/srv/writer-$place")" "/srv/data/all/writer-$place") "/srv/writer-$place" >/dev/null || fail "lines are lost of what was written to $place"
    done
    journalctl --boot --no-pager --unit=iogate-coord | grep 'turns may be held that are not known' >/dev/null || fail 'the coordinator takes this boot for the one before'
    journalctl --boot=-1 --no-pager --unit='iogate-*' >/tmp/before
    ! grep 'is not a mount point' /tmp/before || fail 'a stop in order says that something is wrong'
    for unit in "${services[@]}"; do
        grep -E "$unit.service: (Deactivated|Failed)" /tmp/before | tail -n 1 | grep -q 'Deactivated successfully' ||
            fail "$unit did not end well when the machine was shut down: $(grep "$unit" /tmp/before)"
    done
}

upgraded() {
    step 'an upgrade while all of them run'
    local unit
    declare -A before
    for unit in "${services[@]}"; do before[$unit]=$(process "$unit"); done
    exec 5>/mnt/remote/all/held
    echo before >&5
    said dpkg --force-unsafe-io --install /out/next/*.deb
    echo after >&5 || fail 'a program does not go on over an upgrade'
    exec 5>&-
    for unit in "${services[@]}"; do
        runs "$unit"
        case $unit in
        iogate-mount@*) [ "$(process "$unit")" = "${before[$unit]}" ] || fail "an upgrade takes $unit away from who uses it" ;;
        *) [ "$(process "$unit")" != "${before[$unit]}" ] || fail "an upgrade leaves the program of before to $unit" ;;
        esac
    done
    said systemctl restart iogate-mount@data
    [ "$(readlink "/proc/$(process iogate-mount@data)/exe")" = /usr/bin/iogate ] || fail 'a mount that is started again has the program of before'
    [ "$(cat /mnt/gate/all/held)" = $'before\nafter' ] || fail "what was written over an upgrade: $(cat /mnt/gate/all/held)"
}

removed() {
    step 'removed and purged'
    said dpkg --remove iogate
    for unit in "${services[@]}"; do [ "$(systemctl is-active "$unit")" = inactive ] || fail "$unit: $(systemctl status --no-pager "$unit")"; done
    ! grep fuse.iogate /proc/self/mounts || fail 'something is mounted'
    ls /etc/iogate/mount/data.conf /etc/iogate/coord.conf >/dev/null || fail 'removing takes the configuration'
    said dpkg --purge iogate
    [ ! -e /var/lib/iogate/coord ] || fail 'a purge leaves what the coordinator knew'
    [ -z "$(find /etc/systemd -name 'iogate-*')" ] || fail "a purge leaves units: $(find /etc/systemd -name 'iogate-*')"
    [ "$(cat /srv/data/all/theirs)" = theirs ] || fail 'a purge takes data'
}

again() {
    booted
    upgraded
    removed
}

"$1"
step 'done'
