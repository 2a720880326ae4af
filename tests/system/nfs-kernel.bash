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
