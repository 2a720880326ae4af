/* What the files of the MPI library share. */
#ifndef IOGATE_SHIM_H
#define IOGATE_SHIM_H

#include <mpi.h>

#include "iogate.h"

/* Programs have functions of such names too. */
#pragma GCC visibility push(hidden)

/* The C functions for turns, wherever this process has them: in libiogate_preload.so, or else in libiogate_turn.so. */
struct turns_api {
    int (*acquire)(const char *, const iogate_wish *, iogate_turn **);
    int (*release)(iogate_turn *);
    int (*is_valid)(const iogate_turn *);
    int (*probe)(const char *);
    void (*enter)(void);
    void (*leave)(void);
    const char *(*error)(void);
    int (*is_bulk)(const char *); /* Null where only libiogate_turn.so is there: then no file is recognised. */
};

/* The functions; null if there is no library that has them. Looked for once. */
const struct turns_api *turns_api(void);

/* What a turn of a communicator is taken for (IOGATE_MPI_TURN). */
enum turn_mode { TURN_NONE, TURN_BURST, TURN_FILE, TURN_COLLECTIVE };

/* What this process's environment asks for. */
enum turn_mode turns_wanted(void);

/* MPI is up. Collective. */
void mpi_started(void);

/* All ranks of MPI_COMM_WORLD have agreed on a mode. */
void turns_start(enum turn_mode mode);
/* MPI is about to end: so do all turns. */
void turns_stop(void);

/* A value of rank 0 for all ranks; and a barrier. Collective. Ranks that wait for long do not keep their processors busy. */
int share(MPI_Comm comm, int value);
void meet(MPI_Comm comm);

/* Whether this process is in a turn of a communicator that only the program ends; and that it comes into one, or goes out of it. What it
 * writes there takes no other turn: to wait for one while others wait for the first could last for ever. */
int is_inside(void);
void come_inside(void);
void go_outside(void);

/* Before and after the calls that can begin or end a turn; `fh` may be any file. Those that are collective must be called by all
 * ranks of the file. The result is MPI_SUCCESS, or what the call is to return instead of doing anything. */
int file_opened(MPI_Comm comm, const char *path, int mode, MPI_File *fh);
int write_begins(MPI_File fh);
void write_ended(MPI_File fh);
/* Instead of the latter, where a split write did not begin. */
void write_failed(MPI_File fh);
void file_synced(MPI_File fh);
struct file *file_closing(MPI_File fh);
void file_closed(struct file *file);

/* MPI's own Fortran functions may call its C functions: whichever of ours came first does all. */
extern _Thread_local int shim_depth;

#pragma GCC visibility pop

#endif
