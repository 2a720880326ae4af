/* Turns on shared storage for MPI programs: iogate.h for communicators. Link with -liogate_mpi-mpich or -liogate_mpi-openmpi.
 *
 * Each function is collective: all ranks of the communicator call it, and rank 0 does what there is to do. Communicators that
 * a program has made (MPI_Comm_split) have turns of their own; those of one job may hold them together, unless their processes
 * were given names of their own (IOGATE_JOB) before the job's first turn. Fortran programs can use them with bind(C). */
#ifndef IOGATE_MPI_H
#define IOGATE_MPI_H

#include <mpi.h>

#include "iogate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Waits until it is the communicator's turn on the file system of `path`, as iogate_acquire(). All ranks get the same result and errno;
 * ENOSYS where neither libiogate_turn.so nor the preload library is there. Rank 0 gets the turn, the others a null pointer. `path` and
 * `wish` are those of rank 0. */
int iogate_mpi_acquire(MPI_Comm comm, const char *path, const iogate_wish *wish, iogate_turn **turn);

/* 1 on all ranks while the communicator's turn counts; 0 on all once it is lost. For all ranks to ask together, as iogate_is_valid() is 0 of the
 * null pointer that all but rank 0 have. */
int iogate_mpi_is_valid(MPI_Comm comm, const iogate_turn *turn);

/* Ends a turn when all ranks have come here. Rank 0 gets what iogate_release() says, the others 0, without waiting for that. */
int iogate_mpi_release(MPI_Comm comm, iogate_turn *turn);

/* Probes the file system of `path`, as iogate_probe(). All ranks get the same result and errno. */
int iogate_mpi_probe(MPI_Comm comm, const char *path);

/* The three for MPI_COMM_WORLD and the first directory of IOGATE_PLACES, or else the working directory. Pairs may be nested: the outermost
 * one takes the turn and ends it. */
int iogate_mpi_acquire_world(void);
int iogate_mpi_release_world(void);
int iogate_mpi_probe_world(void);

#ifdef __cplusplus
}
#endif

/* The names that they have in A. B. Sreenivasa, I/O Coordination for Co-Running Scientific Applications, 2012 (3.1.3 and 3.2.3). They are
 * not functions of the library, as other libraries of a program may have functions of these names. What goes wrong is said on
 * standard error, and the program goes on. */
#ifdef IOGATE_PAPER_NAMES
static inline void acquire_lock(void)
{
    (void)iogate_mpi_acquire_world();
}

static inline void release_lock(void)
{
    (void)iogate_mpi_release_world();
}

static inline void MPI_prober(void)
{
    (void)iogate_mpi_probe_world();
}
#endif

#endif
