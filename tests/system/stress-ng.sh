#!/usr/bin/env bash
# stress-ng's file system stressors, one after another, each verifying what it did.
# limit: 120
# variants: fifo aioli/page
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

stressors=access,chdir,chmod,chown,copy-file,dentry,dir,dirdeep,dirmany,dup,fallocate,fcntl,filename,flock,fpunch
stressors+=,fsize,fstat,getdent,hdd,io,iomix,link,locka,lockf,mknod,open,rename,symlink,sync-file,touch,utime,xattr

mount_gate
stress-ng --sequential 1 --with "$stressors" --timeout 1 --verify --temp-path "$MNT" --dirdeep-bytes 1m \
    --hdd-bytes 16m --iomix-bytes 16m --fallocate-bytes 16m --copy-file-bytes 16m --metrics-brief \
    >"$SIDE/stress.out" 2>&1 || {
    grep -Ei 'fail|error|abort' "$SIDE/stress.out" | head -n 30
    tail -n 10 "$SIDE/stress.out"
    fail "a stressor failed"
}
grep -Ei 'passed:|failed:' "$SIDE/stress.out" || true
is_gone "$GATE_PID" && fail "the mount's process is gone"
echo still here >"$MNT/after" && [ "$(cat "$SRC/after")" = "still here" ] || fail "the mount does not work afterwards"
unmount_gate
