#!/usr/bin/env bash
# `git clone` onto the mount, a parallel compile there, a commit, and git's own verdict on the result.
# limit: 90
# variants: fifo aioli twins/page aioli/page/device
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs git make cc
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@localhost GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test@localhost
parts=40
origin=$SIDE/origin
mkdir "$origin"
for i in $(seq $parts); do
    echo "int part_$i(void); int part_$i(void) { static const char pad[] = \"$(head -c 1500 /dev/urandom | base64 -w0)\"; return $i + (pad[0] == 0); }" \
        >"$origin/part_$i.c"
done
{
    echo '#include <stdio.h>'
    for i in $(seq $parts); do echo "int part_$i(void);"; done
    echo 'int main(void) { int sum = 0;'
    for i in $(seq $parts); do echo "sum += part_$i();"; done
    echo 'printf("%d\n", sum); return 0; }'
} >"$origin/main.c"
printf '%s\n' 'OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))' 'sum: $(OBJECTS)' '	$(CC) -o $@ $^' >"$origin/Makefile"
printf '%s\n' '*.o' sum >"$origin/.gitignore"
git -C "$origin" init -q
git -C "$origin" add .
git -C "$origin" commit -qm 'Add the parts'

mount_gate
git clone -q "file://$origin" "$MNT/clone"
cd "$MNT/clone"
make -s -j2 >"$SIDE/make.out" 2>&1 || {
    tail -n 20 "$SIDE/make.out"
    fail "the compile failed"
}
[ "$(./sum)" = $((parts * (parts + 1) / 2)) ] || fail "the compiled program prints $(./sum)"
[ -z "$(git status --porcelain)" ] || fail "git status shows changes: $(git status --porcelain | head)"
make -s -q || fail "make would build again: time stamps are not kept"
echo '/* changed */' >>part_1.c
git commit -qam 'Change a part'
git gc -q
git fsck --strict --no-progress || fail "git fsck on the mount"
cd "$SIDE"
unmount_gate
git -C "$SRC/clone" fsck --strict --no-progress || fail "git fsck on the source"
[ "$(git -C "$SRC/clone" log --oneline | wc -l)" -eq 2 ] || fail "a commit is missing"
