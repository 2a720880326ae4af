#!/usr/bin/env bash
# A shell and the usual commands in a directory, which is empty: the same is to be said wherever it is.
# shellcheck disable=SC2012,SC2094
set -u
export LC_ALL=C TZ=UTC
cd "$1" || exit 1

say() { echo "== $*"; }

say redirections
echo one >out
echo two >>out
{ echo three && echo four; } >>out
cat <out
read -r first <out && echo "first $first"
while read -r line; do echo "line $line"; done <out
exec 5<>out
read -r line <&5 && echo "five $line"
echo FIVE >&5
exec 5>&-
cat out
cat <<<"here" >here && cat here
printf '%s\n' c a b | sort >sorted && cat sorted
(
    exec >subshell
    echo in
    printf '%d\n' 5
    ls -d . missing 2>&1
)
cat subshell
wc -l <subshell
cat /dev/stdin <sorted
tee one two <sorted >/dev/null && cmp one two && echo same
[ -f out ] && [ ! -d out ] && [ -s out ] && [ -w . ] && [ out -ef ./out ] && echo tests
set -o noclobber
{ echo x >out; } 2>/dev/null || echo refused
set +o noclobber
echo a* s*

say files
head -c 3000000 /dev/urandom >"$OLDPWD/random.$$" 2>/dev/null || head -c 3000000 /dev/zero >"/tmp/random.$$"
random=$OLDPWD/random.$$
[ -f "$random" ] || random=/tmp/random.$$
cp "$random" copied && cmp "$random" copied && echo copied
[ "$(sha256sum <copied)" = "$(sha256sum <"$random")" ] && echo sums
dd if="$random" of=dd bs=64k status=none && cmp dd copied && echo dd
dd if=dd of=part bs=1000 skip=3 count=4 status=none && wc -c <part
dd if=/dev/zero of=part bs=1 seek=10 count=2 conv=notrunc status=none && wc -c <part
dd if=/dev/zero of=sync bs=4k count=2 oflag=sync,append conv=fsync,notrunc status=none && wc -c <sync
head -c 100 dd | cmp - <(head -c 100 "$random") && tail -c 100 dd | cmp - <(tail -c 100 "$random") && echo ends
split -b 1M dd piece. && cat piece.* | cmp - dd && ls piece.*
truncate -s 12345 piece.aa && stat -c '%s %F' piece.aa
install -m 640 out installed && stat -c '%a %s' installed
touch -d '2001-02-03 04:05:06.789' touched && stat -c '%y %s' touched
mkdir -p deep/er/est && mv out deep/er && cat deep/er/out && mv deep/er/out .
mv here deep/er/est/there && ls -R deep
mv deep elsewhere && find elsewhere | sort
ln out hard && ln -s out soft && stat -c '%h' out && readlink soft && cat soft
ln -s ../soft elsewhere/up && cat elsewhere/up
readlink -f elsewhere/up | sed "s,^$PWD,," && realpath --relative-to=. elsewhere/er/../up
chmod 600 hard && stat -c %a out && chmod -R go= elsewhere && stat -c %a elsewhere elsewhere/er
cp -a elsewhere archived && diff -r elsewhere archived && echo archived
cp --sparse=always copied sparse && cmp sparse copied && echo sparse
sort -r sorted -o sorted && cat sorted
sed -i s/a/A/ sorted && cat sorted
du --apparent-size -b out copied | cut -f 1
ls -ln out | cut -d' ' -f 1,2,5
grep -c . out && grep -l FIVE -- * 2>/dev/null
awk '{ print NR, $1 > "awk" } END { close("awk") }' out && cat awk
comm -12 <(sort out) <(sort awk)
tail -n 1 out && tac out && nl out && od -c out | head -n 2
tar -cf tarred elsewhere out && tar -tf tarred | sort
mkdir unpacked && tar -C unpacked -xf tarred && diff -r elsewhere unpacked/elsewhere && echo unpacked
tar -C unpacked -czf zipped.tgz . && tar -tzf zipped.tgz | wc -l
gzip -k copied && gzip -dc copied.gz | cmp - copied && echo gzip
find . -name 'piece.*' -size +100k | sort
find . -type l | sort
find . -name 'piece.*' -delete && ls piece.* 2>/dev/null
xargs -a sorted -n 1 echo item
flock out echo locked
exec 9>lock
flock -n 9 && echo "a lock by a descriptor"
flock -n lock echo wrong || echo "lasts longer than who took it"
bash -c 'flock -n 9 && echo "and is that of programs"'
flock -u 9 && flock -n lock echo "until it is given up"
exec 9>&-
(
    flock -n 9 && echo "a subshell's"
    flock -n lock echo wrong || echo holds
) 9>lock
bash -c 'flock -n 9 && echo "a script'"'"'s"; flock -n lock echo wrong || echo holds' 9>lock
python3 -c 'import fcntl, os, signal
signal.alarm(60)
file = open("lock")
fcntl.flock(file, fcntl.LOCK_EX)
reader, writer = os.pipe()
if os.fork() == 0:
    os.close(writer)
    os.dup2(reader, 0)
    os.execvp("cat", ["cat"])
os.close(reader)
file.close()
fcntl.flock(open("lock"), fcntl.LOCK_EX)
print("a lock goes with the open file")
os.close(writer)
os.wait()'
flock -n lock echo free && rm lock
(cd elsewhere/er && pwd | sed "s,^$1,," && ls ../.. | wc -l && /bin/pwd | sed "s,^$1,," && cat ../../out && bash -c 'cat ../../out' && cd ../.. && ls -d elsewhere)
python3 -c 'print(open("out").read())'
relative=${1#/}
(cd / && cat "$relative/out" && head -n 1 <"$relative/out" && cat "./dev/../$relative//out")

say programs
printf '#!/bin/sh\necho "script $0 $*" | sed "s,$PWD/,,"\n' >script && chmod +x script && ./script one two
printf '#!/usr/bin/env -S python3 -S\nimport sys\nprint(sys.argv[1:])\n' >python && chmod +x python && "$PWD/python" three
cp "$(command -v printf)" binary && ./binary '%s\n' binary && env -C / "$PWD/binary" '%s\n' again
./awk 2>/dev/null || echo "refused $?"
chmod -x script && { ./script 2>/dev/null || echo "refused $?"; }
rm script python binary

say errors
cat missing 2>/dev/null || echo "cat $?"
mkdir elsewhere 2>/dev/null || echo "mkdir $?"
rmdir elsewhere 2>/dev/null || echo "rmdir $?"
rm missing 2>/dev/null || echo "rm $?"
mv missing other 2>/dev/null || echo "mv $?"
cp out missing/out 2>/dev/null || echo "cp $?"
ls missing 2>/dev/null || echo "ls $?"
(cd out) 2>/dev/null || echo "cd $?"

say away
rm -r elsewhere archived unpacked && ls -A | sort | tr '\n' ' '
rm -f copied copied.gz dd part sparse zipped.tgz tarred "$random" && ls -A | sort | tr '\n' ' '
