/* A shared file of all ranks, written and read back by MPI-IO, verified byte by byte.
 *
 *   mpi-io FILE BLOCKS
 *
 * Blocks of 64 KiB are dealt out in turn. The first half is written collectively through a strided view, the second half by
 * independent calls; then each rank reads what another one wrote. Ends with status 1 if anything is not as expected. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 * 1024 };

static void check(int result, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (result == MPI_SUCCESS)
        return;
    MPI_Error_string(result, text, &length);
    fprintf(stderr, "mpi-io: %s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(char *memory, long block)
{
    for (int i = 0; i < BLOCK; i++)
        memory[i] = (char)(block * 31 + i * 7 + (i >> 8));
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_File file;
    MPI_Datatype stripes;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3) {
        fprintf(stderr, "mpi-io: expected FILE BLOCKS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int blocks = atoi(argv[2]);
    MPI_Offset half = (MPI_Offset)blocks * ranks * BLOCK;
    char *memory = malloc((size_t)blocks * BLOCK), *expected = malloc(BLOCK);

    check(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
    for (int i = 0; i < blocks; i++)
        fill(memory + (size_t)i * BLOCK, (long)i * ranks + rank);
    MPI_Type_vector(blocks, BLOCK, BLOCK * ranks, MPI_BYTE, &stripes);
    MPI_Type_commit(&stripes);
    check(MPI_File_set_view(file, (MPI_Offset)rank * BLOCK, MPI_BYTE, stripes, "native", MPI_INFO_NULL), "view");
    check(MPI_File_write_all(file, memory, blocks * BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), "collective write");
    check(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "view");
    for (int i = 0; i < blocks; i++) {
        MPI_Offset at = half + ((MPI_Offset)i * ranks + rank) * BLOCK;
        check(MPI_File_write_at(file, at, memory + (size_t)i * BLOCK, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), "write");
    }
    check(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);

    int other = (rank + 1) % ranks;
    for (int part = 0; part < 2; part++)
        for (int i = 0; i < blocks; i++) {
            long block = (long)i * ranks + other;
            MPI_Offset at = part * half + (MPI_Offset)block * BLOCK;
            check(MPI_File_read_at(file, at, memory, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), "read");
            fill(expected, block);
            if (memcmp(memory, expected, BLOCK) != 0) {
                fprintf(stderr, "mpi-io: rank %d: block %ld of part %d is not what rank %d wrote\n", rank, block, part, other);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
    MPI_Offset size;
    check(MPI_File_get_size(file, &size), "size");
    if (size != 2 * half) {
        fprintf(stderr, "mpi-io: expected %lld bytes, found %lld\n", (long long)(2 * half), (long long)size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    check(MPI_File_close(&file), "close");
    if (rank == 0)
        printf("%d ranks, %lld bytes: verified\n", ranks, (long long)size);
    MPI_Type_free(&stripes);
    free(memory);
    free(expected);
    MPI_Finalize();
    return 0;
}
