#!/usr/bin/env bash
# All processes of an MPI job are one application, whatever their launcher leaves in their environment.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs jq mpicc.mpich mpicc.openmpi
HERE=$(cd "$(dirname "$0")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mount_gate
"$HERE/../../mpi/build"
for mpi in mpich openmpi; do
    library=$HERE/../../target/mpi/libiogate_mpi-$mpi.so
    mpicc.$mpi -O1 -o "$SIDE/mpi-io.$mpi" "$HERE/mpi-io.c"
    if [ $mpi = mpich ]; then
        options=(-genv LD_PRELOAD "$library")
    else
        options=(--oversubscribe -x "LD_PRELOAD=$library")
    fi
    # Each rank in a session of its own: without the library, and without a job's number, each is an application.
    timeout 30 mpirun.$mpi "${options[@]}" -n 3 "$SIDE/mpi-io.$mpi" "$MNT/shared-$mpi" 4 || fail "the $mpi program"
done
apps=$("$IOGATE" status "$MNT" --json | jq '[.apps[] | select(.requests > 10) | .id]')
"$IOGATE" status "$MNT" --json | jq -c ".apps[] | [.id, .name, .requests]"
[ "$(jq length <<<"$apps")" -eq 2 ] || fail "expected one application for each job"
[ "$(jq 'all(. >= 3221225472)' <<<"$apps")" = true ] || fail "expected ids that the jobs chose"
unmount_gate
