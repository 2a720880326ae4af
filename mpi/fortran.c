/* Fortran's functions of MPI that the C ones of this library stand for. Open MPI's do not call the C functions by the names that can be
 * taken over, and MPICH's `mpi_f08` does so for a few only; so each is taken over by its own name, and hands its arguments on as
 * they are. A file's handle, as Fortran has it, is all that is looked at.
 *
 * Names as gfortran, flang and ifort make them: lower case with one underscore. `use mpi` and `mpif.h` have mpi_name_, `use mpi_f08`
 * mpi_name_f08_, or with MPICH, for functions with a buffer, mpi_name_f08ts_. An `mpi_f08` type is one integer, and its error an argument
 * that may be left out. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*function)();

/* MPI's own function of a name, by the name that it has for that: pmpi_name_, or pmpir_name_ for MPICH's `mpi_f08`. */
static function own(const char *name)
{
    static const char *const FORMS[] = {"pmpi_%s", "pmpir_%s"};
    function found = NULL;
    char own_name[64];
    for (size_t i = 0; found == NULL && i < sizeof FORMS / sizeof *FORMS; i++) {
        snprintf(own_name, sizeof own_name, FORMS[i], name + strlen("mpi_"));
        *(void **)&found = dlsym(RTLD_DEFAULT, own_name);
    }
    if (found == NULL) {
        fprintf(stderr, "iogate: there is no %s in this program's MPI: load the library that was built with it\n", name);
        abort();
    }
    return found;
}

static MPI_File file_of(const void *fh)
{
    return PMPI_File_f2c(*(const MPI_Fint *)fh);
}

/* Calls MPI's own function, which may call C functions of ours. */
#define CALL(name, arguments)                       \
    do {                                            \
        static function next;                       \
        if (next == NULL)                           \
            next = own(#name);                      \
        shim_depth++;                               \
        next arguments;                             \
        shim_depth--;                               \
    } while (0)

static void started(const int *error)
{
    int is_up = 0;
    PMPI_Initialized(&is_up);
    if (is_up && (error == NULL || *error == MPI_SUCCESS))
        mpi_started();
}

/* The result of what was called, and where it has gone wrong already, none of ours. */
static int failed(int *error, int result)
{
    if (error != NULL && result != MPI_SUCCESS)
        *error = result;
    return result != MPI_SUCCESS;
}

static void opened(const MPI_Fint *comm, const char *path, size_t length, const int *access, MPI_Fint *fh, int *error)
{
    MPI_File file = file_of(fh);
    char *name;
    if ((error != NULL && *error != MPI_SUCCESS) || file == MPI_FILE_NULL)
        return;
    while (length > 0 && path[length - 1] == ' ')
        length--;
    while (length > 0 && *path == ' ')
        path++, length--;
    name = strndup(path, length);
    if (name == NULL)
        abort(); /* The other ranks would wait for this one. */
    if (failed(error, file_opened(PMPI_Comm_f2c(*comm), name, *access, &file)))
        *fh = PMPI_File_c2f(file);
    free(name);
}

#define SET_UP(end)                                                                                                 \
    void mpi_init_##end(int *error)                                                                                 \
    {                                                                                                               \
        CALL(mpi_init_##end, (error));                                                                              \
        started(error);                                                                                             \
    }                                                                                                               \
    void mpi_init_thread_##end(int *required, int *provided, int *error)                                            \
    {                                                                                                               \
        CALL(mpi_init_thread_##end, (required, provided, error));                                                   \
        started(error);                                                                                             \
    }                                                                                                               \
    void mpi_finalize_##end(int *error)                                                                             \
    {                                                                                                               \
        turns_stop();                                                                                               \
        CALL(mpi_finalize_##end, (error));                                                                          \
    }                                                                                                               \
    void mpi_file_open_##end(MPI_Fint *comm, char *path, int *access, void *info, MPI_Fint *fh, int *error, size_t length) \
    {                                                                                                               \
        CALL(mpi_file_open_##end, (comm, path, access, info, fh, error, length));                                   \
        opened(comm, path, length, access, fh, error);                                                              \
    }                                                                                                               \
    void mpi_file_close_##end(MPI_Fint *fh, int *error)                                                             \
    {                                                                                                               \
        struct file *file = file_closing(file_of(fh));                                                              \
        CALL(mpi_file_close_##end, (fh, error));                                                                    \
        file_closed(file);                                                                                          \
    }                                                                                                               \
    void mpi_file_sync_##end(MPI_Fint *fh, int *error)                                                              \
    {                                                                                                               \
        CALL(mpi_file_sync_##end, (fh, error));                                                                     \
        file_synced(file_of(fh));                                                                                   \
    }

#define WHOLE(name, parameters, arguments)                  \
    void name parameters                                    \
    {                                                       \
        if (failed(error, write_begins(file_of(fh))))       \
            return;                                         \
        CALL(name, arguments);                              \
        write_ended(file_of(fh));                           \
    }

#define BEGIN(name, parameters, arguments)                  \
    void name parameters                                    \
    {                                                       \
        int own_error = MPI_SUCCESS;                        \
        if (failed(error, write_begins(file_of(fh))))       \
            return;                                         \
        if (error == NULL)                                  \
            error = &own_error;                             \
        CALL(name, arguments);                              \
        if (*error != MPI_SUCCESS)                          \
            write_failed(file_of(fh));                      \
    }

#define END(name)                                                       \
    void name(void *fh, void *memory, void *status, int *error)         \
    {                                                                   \
        CALL(name, (fh, memory, status, error));                        \
        write_ended(file_of(fh));                                       \
    }

#define WRITES(end)                                                                                                 \
    WHOLE(mpi_file_write_all_##end, (void *fh, void *memory, void *count, void *type, void *status, int *error),    \
          (fh, memory, count, type, status, error))                                                                 \
    WHOLE(mpi_file_write_at_all_##end,                                                                              \
          (void *fh, void *at, void *memory, void *count, void *type, void *status, int *error),                    \
          (fh, at, memory, count, type, status, error))                                                             \
    WHOLE(mpi_file_write_ordered_##end, (void *fh, void *memory, void *count, void *type, void *status, int *error),\
          (fh, memory, count, type, status, error))                                                                 \
    BEGIN(mpi_file_write_all_begin_##end, (void *fh, void *memory, void *count, void *type, int *error),            \
          (fh, memory, count, type, error))                                                                         \
    BEGIN(mpi_file_write_at_all_begin_##end, (void *fh, void *at, void *memory, void *count, void *type, int *error),\
          (fh, at, memory, count, type, error))                                                                     \
    BEGIN(mpi_file_write_ordered_begin_##end, (void *fh, void *memory, void *count, void *type, int *error),        \
          (fh, memory, count, type, error))                                                                         \
    END(mpi_file_write_all_end_##end)                                                                               \
    END(mpi_file_write_at_all_end_##end)                                                                            \
    END(mpi_file_write_ordered_end_##end)

SET_UP()
SET_UP(f08_)
WRITES()
WRITES(f08_)
WRITES(f08ts_)
