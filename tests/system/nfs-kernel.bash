# shellcheck shell=bash
# What is served, and by whom, where the kernel's own NFS client is tried. Sourced; from the test: IOGATE, SRC (what is served), OUT
# (what client and server share), SCHEDULER.

# How the client mounts what `write_server` serves.
# shellcheck disable=SC2034 # used where this is sourced
NFS_OPTIONS=vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,nolock,timeo=50
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@localhost GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test@localhost

# make_origin FOLDER: a git repository with a program of twenty parts.
# shellcheck disable=SC2016 # make expands what is quoted
make_origin() {
    mkdir "$1"
    for i in $(seq 20); do echo "int part_$i(void); int part_$i(void) { return $i; }" >"$1/part_$i.c"; done
    {
        echo '#include <stdio.h>'
        for i in $(seq 20); do echo "int part_$i(void);"; done
        echo 'int main(void) { int sum = 0;'
        for i in $(seq 20); do echo "sum += part_$i();"; done
        echo 'printf("%d\n", sum); return 0; }'
    } >"$1/main.c"
    printf '%s\n' 'OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))' 'sum: $(OBJECTS)' '	$(CC) -o $@ $^' >"$1/Makefile"
    printf '%s\n' '*.o' sum >"$1/.gitignore"
    git -C "$1" init -q
    git -C "$1" add .
    git -C "$1" commit -qm 'Add the parts'
}

# write_server FILE: a script that serves SRC, again after each kill, until there is a file OUT/stop. OUT/server.pid has the server's process.
write_server() {
    cat >"$1" <<END
until [ -e "$OUT/stop" ]; do
    bash -c 'echo \$\$ >"$OUT/server.pid"; exec "$IOGATE" nfs "$SRC" --listen 10.99.0.1:2049 --allow 10.99.0.0/24 --no-root-squash --scheduler $SCHEDULER'
done
END
}

# write_rounds FILE: what is done on the mount by more than one test, as functions for the client's shell. The first that is not as it should be ends it.
write_rounds() {
    cat >"$1" <<'END'
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@localhost GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test@localhost
fail() { echo "failed: $*" >&2; exit 1; }

# git and a compile, in a new folder `clone`.
compile() {
    git clone -q file:///mnt/out/origin clone
    cd clone
    make -s -j2 >/tmp/make.out 2>&1 || fail "the compile: $(tail -n 3 /tmp/make.out)"
    [ "$(./sum)" = 210 ] || fail "the compiled program prints $(./sum)"
    [ -z "$(git status --porcelain)" ] || fail "git status shows changes"
    make -s -q || fail "make would build again: time stamps are not kept"
    echo '/* more */' >>part_1.c
    git commit -qam 'Change a part'
    git gc -q
    git fsck --full --strict >/tmp/fsck 2>&1 || fail "git fsck: $(tail -n 3 /tmp/fsck)"
    cd ..
}

# users FOLDER: what a user may do here and what not; in this folder he may not write.
users() {
    echo secret >secret
    chmod 600 secret
    setpriv --reuid 1000 --regid 1000 --groups 2000 bash -euc '
        refused() { if "$@" 2>/dev/null; then echo "not refused: $*" >&2; exit 1; fi; }
        refused cat secret
        refused touch "$0/new"
        mkdir mine
        echo mine >mine/file
        chmod 400 mine/file
        [ "$(cat mine/file)" = mine ]
        refused bash -c "echo more >>mine/file"
        chgrp 2000 mine/file
        refused chgrp 3000 mine/file
        [ "$(stat -c %u:%g mine/file)" = 1000:2000 ]
    ' "$1" || fail "permissions of a user"
}
END
}
