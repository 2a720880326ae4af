/* The C functions of MPI-IO that can begin or end a turn. Each does what MPI's own does, between what files.c does. */
#include "shim.h"

int MPI_File_open(MPI_Comm comm, const char *path, int access, MPI_Info info, MPI_File *fh)
{
    int result = PMPI_File_open(comm, path, access, info, fh);
    return result == MPI_SUCCESS ? file_opened(comm, path, access, fh) : result;
}

int MPI_File_close(MPI_File *fh)
{
    struct file *file = file_closing(*fh);
    int result = PMPI_File_close(fh);
    file_closed(file);
    return result;
}

int MPI_File_sync(MPI_File fh)
{
    int result = PMPI_File_sync(fh);
    file_synced(fh);
    return result;
}

#define WHOLE(name, parameters, arguments)          \
    int MPI_File_##name parameters                  \
    {                                               \
        int result = write_begins(fh);              \
        if (result != MPI_SUCCESS)                  \
            return result;                          \
        result = PMPI_File_##name arguments;        \
        write_ended(fh);                            \
        return result;                              \
    }

#define BEGIN(name, parameters, arguments)          \
    int MPI_File_##name parameters                  \
    {                                               \
        int result = write_begins(fh);              \
        if (result != MPI_SUCCESS)                  \
            return result;                          \
        result = PMPI_File_##name arguments;        \
        if (result != MPI_SUCCESS)                  \
            write_failed(fh);                       \
        return result;                              \
    }

#define END(name)                                                               \
    int MPI_File_##name(MPI_File fh, const void *memory, MPI_Status *status)    \
    {                                                                           \
        int result = PMPI_File_##name(fh, memory, status);                      \
        write_ended(fh);                                                        \
        return result;                                                          \
    }

/* For functions with counts of the type `count_type`, whose names end in `end`. */
#define WRITES(end, count_type)                                                                                     \
    WHOLE(write_all##end,                                                                                           \
          (MPI_File fh, const void *memory, count_type count, MPI_Datatype type, MPI_Status *status),               \
          (fh, memory, count, type, status))                                                                        \
    WHOLE(write_at_all##end,                                                                                        \
          (MPI_File fh, MPI_Offset at, const void *memory, count_type count, MPI_Datatype type, MPI_Status *status),\
          (fh, at, memory, count, type, status))                                                                    \
    WHOLE(write_ordered##end,                                                                                       \
          (MPI_File fh, const void *memory, count_type count, MPI_Datatype type, MPI_Status *status),               \
          (fh, memory, count, type, status))                                                                        \
    BEGIN(write_all_begin##end, (MPI_File fh, const void *memory, count_type count, MPI_Datatype type),             \
          (fh, memory, count, type))                                                                                \
    BEGIN(write_at_all_begin##end,                                                                                  \
          (MPI_File fh, MPI_Offset at, const void *memory, count_type count, MPI_Datatype type),                    \
          (fh, at, memory, count, type))                                                                            \
    BEGIN(write_ordered_begin##end, (MPI_File fh, const void *memory, count_type count, MPI_Datatype type),         \
          (fh, memory, count, type))

WRITES(, int)
#if MPI_VERSION >= 4
WRITES(_c, MPI_Count)
#endif
END(write_all_end)
END(write_at_all_end)
END(write_ordered_end)
