#!/usr/bin/env bash
# `iogate run` and MPI: before or after mpirun, with MPICH and Open MPI; the library for the program's MPI is found.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

root=$(cd "$(dirname "$0")/../.." && pwd)
command -v mpicc.mpich mpicc.openmpi >/dev/null || skip "there is no MPI"
"$root/mpi/build" >/dev/null
coord=unix:$SIDE/socket
"$IOGATE" coord serve --listen "$coord" --state "$SIDE/state" >"$WORK/coordinator.log" 2>&1 &
eventually 10 test -S "$SIDE/socket" || fail "the coordinator does not listen"
mkdir "$SIDE/data"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
run=("$IOGATE" run --coord "$coord" --target "$SIDE/data=scratch" --)

# mpi NAME COMPILER RUNNER...: four ranks write one file.
mpi() {
    local name=$1 compiler=$2 file
    shift 2
    "$compiler" -o "$SIDE/$name" "$root/crates/iogate-preload/tests/programs/mpiio.c"
    timeout 60 "$@" -n 4 "$SIDE/$name" "$SIDE/$name.plain" >/dev/null
    for file in before after; do
        echo "== $name, $file"
        if [ "$file" = before ]; then
            timeout 30 "${run[@]}" "$@" -n 4 "$SIDE/$name" "$SIDE/data/$name.$file"
        else
            timeout 30 "$@" -n 4 "${run[@]}" "$SIDE/$name" "$SIDE/data/$name.$file"
        fi >"$SIDE/said" 2>&1 || fail "$name: $(cat "$SIDE/said")"
        [ "$(cat "$SIDE/said")" = "4 ranks, 0 wrong" ] || fail "$name says: $(cat "$SIDE/said")"
        cmp "$SIDE/data/$name.$file" "$SIDE/$name.plain" || fail "$name: the file differs from one without turns"
    done
}
mpi mpich mpicc.mpich mpirun.mpich
mpi openmpi mpicc.openmpi mpirun.openmpi --oversubscribe

"$IOGATE" coord status --json "$coord" | python3 -c "
import json, sys
status = json.load(sys.stdin)
turns = status['finished']
assert not status['holders'] and {turn['place'] for turn in turns} == {'scratch'}, status
assert len({turn['label'] for turn in turns}) == 4, [turn['label'] for turn in turns]
assert sum(turn['bytes'] for turn in turns) > 0, turns" || fail "the turns are not as expected"

echo "== without the library for the MPI, one rank says so for all"
for order in before after; do
    launch=(mpirun.mpich -n 4)
    if [ "$order" = before ]; then
        IOGATE_MPI=$SIDE/none.so "${run[@]}" "${launch[@]}" "$SIDE/mpich" "$SIDE/data/none"
    else
        IOGATE_MPI=$SIDE/none.so "${launch[@]}" "${run[@]}" "$SIDE/mpich" "$SIDE/data/none"
    fi >"$SIDE/said" 2>&1 || fail "without the library: $(cat "$SIDE/said")"
    [ "$(grep -c "there is no .*none.so" "$SIDE/said")" -eq 1 ] || fail "$order, it says: $(cat "$SIDE/said")"
done
