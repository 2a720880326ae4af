/* Ranks that write one file together and apart, and read it back. The only argument is the file. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 65536, BLOCKS = 16, PIECE = 100, PIECES = 64 };

static int rank, ranks, wrong;

static void check(int error, const char *what) {
    if (error != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        int bytes;
        MPI_Error_string(error, text, &bytes);
        fprintf(stderr, "rank %d: %s: %.*s\n", rank, what, bytes, text);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}
#define CHECK(call) check(call, #call)

static void fill(char *memory, size_t bytes, int of, int round) {
    for (size_t at = 0; at < bytes; at++)
        memory[at] = (char)(of * 31 + round * 7 + at % 251);
}

static void expect(const char *memory, const char *expected, size_t bytes, const char *what) {
    if (memcmp(memory, expected, bytes)) {
        fprintf(stderr, "rank %d: %s differs\n", rank, what);
        wrong++;
    }
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_File file;
    char *mine = malloc(BLOCK), *read = malloc(BLOCK), *expected = malloc(BLOCK);
    int mode = MPI_MODE_CREATE | MPI_MODE_RDWR;
    CHECK(MPI_File_open(MPI_COMM_WORLD, arguments[1], mode, MPI_INFO_NULL, &file));

    /* Apart: each rank its blocks, in turn. */
    for (int block = 0; block < BLOCKS; block++) {
        fill(mine, BLOCK, rank, block);
        MPI_Offset offset = ((MPI_Offset)block * ranks + rank) * BLOCK;
        CHECK(MPI_File_write_at(file, offset, mine, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    CHECK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    int other = (rank + 1) % ranks;
    for (int block = 0; block < BLOCKS; block++) {
        fill(expected, BLOCK, other, block);
        MPI_Offset offset = ((MPI_Offset)block * ranks + other) * BLOCK;
        CHECK(MPI_File_read_at(file, offset, read, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE));
        expect(read, expected, BLOCK, "what was written apart");
    }
    MPI_Barrier(MPI_COMM_WORLD);

    /* Together, in small interleaved pieces through a view; then the same without the others. */
    MPI_Offset start = (MPI_Offset)BLOCKS * ranks * BLOCK;
    for (int together = 1; together >= 0; together--) {
        MPI_Datatype strided;
        MPI_Type_vector(PIECES, PIECE, PIECE * ranks, MPI_BYTE, &strided);
        MPI_Type_commit(&strided);
        CHECK(MPI_File_set_view(file, start + rank * PIECE, MPI_BYTE, strided, "native", MPI_INFO_NULL));
        fill(mine, PIECE * PIECES, rank, 100 + together);
        if (together)
            CHECK(MPI_File_write_all(file, mine, PIECE * PIECES, MPI_BYTE, MPI_STATUS_IGNORE));
        else
            CHECK(MPI_File_write(file, mine, PIECE * PIECES, MPI_BYTE, MPI_STATUS_IGNORE));
        CHECK(MPI_File_sync(file));
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(MPI_File_set_view(file, start + other * PIECE, MPI_BYTE, strided, "native", MPI_INFO_NULL));
        fill(expected, PIECE * PIECES, other, 100 + together);
        CHECK(MPI_File_read_all(file, read, PIECE * PIECES, MPI_BYTE, MPI_STATUS_IGNORE));
        expect(read, expected, PIECE * PIECES, together ? "what was written together" : "what was written strided");
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
        start += (MPI_Offset)PIECE * PIECES * ranks;
        MPI_Type_free(&strided);
    }

    MPI_Offset size;
    CHECK(MPI_File_get_size(file, &size));
    if (size != start) {
        fprintf(stderr, "rank %d: the file has %lld bytes, not %lld\n", rank, (long long)size, (long long)start);
        wrong++;
    }
    CHECK(MPI_File_close(&file));
    int all;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks, %d wrong\n", ranks, all);
    MPI_Finalize();
    return all != 0;
}
