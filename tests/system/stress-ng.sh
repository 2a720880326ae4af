#!/usr/bin/env bash
# stress-ng's file system stressors, some at a time, each verifying what it did.
# limit: 120
# variants: fifo aioli/page
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs stress-ng
groups="
access chdir chmod chown
copy-file dentry dir dirdeep
dirmany dup fallocate fcntl
filename flock fpunch fsize
fstat getdent hdd io
iomix link locka lockf
mknod open rename symlink
sync-file touch utime xattr
"
mount_gate
while read -r -a group; do
    [ ${#group[@]} -gt 0 ] || continue
    options=()
    for stressor in "${group[@]}"; do
        options+=("--$stressor" 1)
        case $stressor in
        hdd | iomix | fallocate | sync-file | dirdeep) options+=("--$stressor-bytes" 16m) ;;
        copy-file) options+=(--copy-file-bytes 128m) ;; # the least it takes
        esac
    done
    stress-ng "${options[@]}" --timeout 1 --verify --temp-path "$MNT" >"$SIDE/stress.out" 2>&1 || {
        cat "$SIDE/stress.out"
        fail "a stressor of ${group[*]} failed"
    }
    ! is_gone "$GATE_PID" || fail "the mount's process is gone after ${group[*]}"
done <<<"$groups"
echo still here >"$MNT/after"
[ "$(cat "$SRC/after")" = "still here" ] || fail "the mount does not work afterwards"
unmount_gate
