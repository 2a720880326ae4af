/* A job that computes and writes checkpoints by MPI-IO, each verified.
 *
 *   mpi-checkpoint KIND[,KIND...] STEM [MIB [CHECKPOINTS [COMPUTE_MS [FOUND]]]]
 *
 * Each rank has MIB (default 1) of a checkpoint, in pieces of 256 KiB that are dealt out in turn. They go to
 * STEM.ckpt, which is then read to be verified, at FOUND.ckpt if that is given. KIND is how they are written; of several, each has its
 * own file, STEM-KIND.ckpt:
 *
 *   collective    by write_at_all, a row of pieces after the other; then sync and close
 *   nested        the same, with one write_at_all for all rows through a view
 *   ordered       by write_ordered
 *   begin-end     by write_at_all_begin and ..._end
 *   nonblocking   by iwrite_at_all
 *   independent   by write_at
 *   lonely        by write_at, of the last rank alone
 *   kept          as collective, but the file stays open for all checkpoints, which are at one place
 *   lasting       as kept, and synced at the end only
 *   failed        as lasting, and after each checkpoint a write_at_all_begin fails
 *   two           to two files that are open at a time
 *   split         by two halves of the ranks, to STEM-0.ckpt and STEM-1.ckpt
 *   asked         by pwrite, between iogate_mpi_acquire() and iogate_mpi_release()
 *   named         by pwrite, between acquire_lock() and release_lock()
 *   probed        by pwrite, after MPI_prober()
 *   held          by pwrite, in a turn that ends with the process: rank 0 kills itself
 *
 * Ends with status 1 if anything is not as expected. Rank 0 prints the seconds of all checkpoints of a kind together. */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef WITH_TURNS
#define IOGATE_PAPER_NAMES
#include "iogate_mpi.h"
#endif

enum { PIECE = 256 * 1024, ROWS_PER_MIB = 4 };

static int rank, ranks;
static MPI_Comm comm = MPI_COMM_WORLD;

static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "mpi-checkpoint: rank %d: %s: %s\n", rank, what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(int result, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (result == MPI_SUCCESS)
        return;
    MPI_Error_string(result, text, &length);
    give_up(what, text);
}

/* What a piece holds: different in each file, checkpoint and piece. */
static void fill(unsigned char *memory, const char *file, int checkpoint, long piece)
{
    unsigned seed = 2166136261u;
    for (; *file != '\0'; file++)
        seed = (seed ^ (unsigned char)*file) * 16777619u;
    seed = seed * 31 + (unsigned)checkpoint * 7919u + (unsigned)piece;
    for (int i = 0; i < PIECE; i++)
        memory[i] = (unsigned char)((seed + (unsigned)i) * 2654435761u >> 24);
}

static void write_row(MPI_File file, const char *kind, int row, int rows, unsigned char *memory)
{
    MPI_Offset at = ((MPI_Offset)row * ranks + rank) * PIECE;
    unsigned char *piece = memory + (size_t)row * PIECE;
    MPI_Request request;
    if (strcmp(kind, "nested") == 0) {
        MPI_Datatype pieces;
        if (row > 0)
            return;
        MPI_Type_vector(rows, PIECE, PIECE * ranks, MPI_BYTE, &pieces);
        MPI_Type_commit(&pieces);
        check(MPI_File_set_view(file, (MPI_Offset)rank * PIECE, MPI_BYTE, pieces, "native", MPI_INFO_NULL), "view");
        check(MPI_File_write_all(file, memory, rows * PIECE, MPI_BYTE, MPI_STATUS_IGNORE), "write_all");
        MPI_Type_free(&pieces);
    } else if (strcmp(kind, "ordered") == 0) {
        check(MPI_File_write_ordered(file, piece, PIECE, MPI_BYTE, MPI_STATUS_IGNORE), "write_ordered");
    } else if (strcmp(kind, "begin-end") == 0) {
        check(MPI_File_write_at_all_begin(file, at, piece, PIECE, MPI_BYTE), "write_at_all_begin");
        check(MPI_File_write_at_all_end(file, piece, MPI_STATUS_IGNORE), "write_at_all_end");
    } else if (strcmp(kind, "nonblocking") == 0) {
        check(MPI_File_iwrite_at_all(file, at, piece, PIECE, MPI_BYTE, &request), "iwrite_at_all");
        check(MPI_Wait(&request, MPI_STATUS_IGNORE), "wait");
    } else if (strcmp(kind, "independent") == 0) {
        check(MPI_File_write_at(file, at, piece, PIECE, MPI_BYTE, MPI_STATUS_IGNORE), "write_at");
    } else if (strcmp(kind, "lonely") == 0) {
        for (int of = 0; rank == ranks - 1 && of < ranks; of++)
            check(MPI_File_write_at(file, at + (MPI_Offset)(of - rank) * PIECE, piece, PIECE, MPI_BYTE, MPI_STATUS_IGNORE),
                  "write_at");
    } else {
        check(MPI_File_write_at_all(file, at, piece, PIECE, MPI_BYTE, MPI_STATUS_IGNORE), "write_at_all");
    }
}

static MPI_File open_file(const char *name)
{
    MPI_File file;
    check(MPI_File_open(comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
    return file;
}

#ifdef WITH_TURNS
static int is_posix(const char *kind)
{
    return strcmp(kind, "asked") == 0 || strcmp(kind, "named") == 0 || strcmp(kind, "probed") == 0 ||
           strcmp(kind, "held") == 0;
}

static void write_posix(const char *kind, const char *name, int rows, const unsigned char *memory)
{
    iogate_turn *turn = NULL;
    int fd;
    if (strcmp(kind, "named") == 0) {
        acquire_lock();
        /* As a library of the program's may do: it is in the turn, and leaves it to the program to end it. */
        acquire_lock();
        release_lock();
    } else if (strcmp(kind, "probed") == 0)
        MPI_prober();
    else if (iogate_mpi_acquire(comm, name, NULL, &turn) != 0)
        give_up("iogate_mpi_acquire", strerror(errno));
    if (strcmp(kind, "asked") == 0 && !iogate_mpi_is_valid(comm, turn))
        give_up("iogate_mpi_is_valid", "the turn does not count on this rank");
    fd = open(name, O_WRONLY | O_CREAT, 0666);
    for (int row = 0; row < rows; row++)
        if (pwrite(fd, memory + (size_t)row * PIECE, PIECE, ((off_t)row * ranks + rank) * PIECE) != PIECE)
            give_up("pwrite", strerror(errno));
    if (close(fd) != 0)
        give_up("close", strerror(errno));
    if (strcmp(kind, "held") == 0) {
        MPI_Barrier(comm);
        if (rank == 0)
            kill(getpid(), SIGKILL);
        sleep(60); /* Until the launcher ends what is left of the job. */
    }
    if (strcmp(kind, "named") == 0)
        release_lock();
    else if (strcmp(kind, "probed") != 0 && iogate_mpi_release(comm, turn) != 0)
        give_up("iogate_mpi_release", strerror(errno));
}
#else
static int is_posix(const char *kind)
{
    (void)kind;
    return 0;
}

static void write_posix(const char *kind, const char *name, int rows, const unsigned char *memory)
{
    (void)name, (void)rows, (void)memory;
    give_up(kind, "this program was built without turns");
}
#endif

/* Each rank reads what the next one wrote. */
static void verify(const char *kind, const char *name, const char *at, int checkpoint, int rows)
{
    unsigned char *found = malloc(PIECE), *expected = malloc(PIECE);
    int other = (rank + 1) % ranks, fd = open(at, O_RDONLY);
    if (fd < 0)
        give_up(at, strerror(errno));
    for (int row = 0; row < rows; row++) {
        long piece = (long)row * ranks + other;
        if (pread(fd, found, PIECE, (off_t)piece * PIECE) != PIECE)
            give_up(at, "it is too short");
        fill(expected, name, checkpoint, strcmp(kind, "lonely") == 0 ? (long)row * ranks + ranks - 1 : piece);
        if (memcmp(found, expected, PIECE) != 0)
            give_up(at, "it does not hold what was written");
    }
    close(fd);
    free(found);
    free(expected);
}

/* All checkpoints of a kind. */
static void run(const char *kind, const char *path, const char *found, int rows, int checkpoints, long compute_ms)
{
    char name[4200], second[4200], at[4200];
    double total = 0;
    int is_failed = strcmp(kind, "failed") == 0, is_lasting = is_failed || strcmp(kind, "lasting") == 0;
    int is_kept = is_lasting || strcmp(kind, "kept") == 0;
    int is_two = strcmp(kind, "two") == 0, is_split = strcmp(kind, "split") == 0;
    MPI_File file = MPI_FILE_NULL, other = MPI_FILE_NULL;

    comm = MPI_COMM_WORLD;
    MPI_Comm_rank(comm, &rank);
    snprintf(name, sizeof name, "%s.ckpt", path);
    if (is_split) {
        snprintf(name, sizeof name, "%s-%d.ckpt", path, rank % 2);
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm);
        MPI_Comm_rank(comm, &rank);
    }
    MPI_Comm_size(comm, &ranks);
    snprintf(second, sizeof second, "%s-2.ckpt", path);
    snprintf(at, sizeof at, "%s", name);
    if (found != NULL)
        snprintf(at, sizeof at, "%s.ckpt", found);
    unsigned char *memory = malloc((size_t)rows * PIECE);

    for (int checkpoint = 0; checkpoint < checkpoints; checkpoint++) {
        struct timespec nap = {.tv_sec = compute_ms / 1000, .tv_nsec = compute_ms % 1000 * 1000000};
        nanosleep(&nap, NULL);
        for (int row = 0; row < rows; row++)
            fill(memory + (size_t)row * PIECE, name, checkpoint, (long)row * ranks + rank);
        MPI_Barrier(comm);
        double began = MPI_Wtime();
        if (is_posix(kind)) {
            write_posix(kind, name, rows, memory);
        } else {
            if (file == MPI_FILE_NULL)
                file = open_file(name);
            if (is_two)
                other = open_file(second);
            for (int row = 0; row < rows; row++) {
                write_row(file, kind, row, rows, memory);
                if (is_two)
                    write_row(other, kind, row, rows, memory);
            }
            if (is_failed && MPI_File_write_at_all_begin(file, 0, memory, -1, MPI_BYTE) == MPI_SUCCESS)
                give_up("write_at_all_begin", "it did not fail");
            if (!is_lasting)
                check(MPI_File_sync(file), "sync");
            if (!is_kept)
                check(MPI_File_close(&file), "close");
            if (is_two)
                check(MPI_File_close(&other), "close");
        }
        MPI_Barrier(comm);
        total += MPI_Wtime() - began;
        verify(kind, name, at, checkpoint, rows);
        MPI_Barrier(comm);
    }
    if (is_kept)
        check(MPI_File_close(&file), "close");
    if (rank == 0)
        printf("%s: %s: %d ranks, %d MiB: verified, %.3f s\n", name, kind, ranks, checkpoints * rows * ranks / ROWS_PER_MIB, total);
    free(memory);
    if (is_split)
        MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    char path[4100];
    MPI_Init(&argc, &argv);
    if (argc < 3)
        give_up("arguments", "expected KIND[,KIND...] STEM [MIB [CHECKPOINTS [COMPUTE_MS [FOUND]]]]");
    int rows = (argc > 3 ? atoi(argv[3]) : 1) * ROWS_PER_MIB, checkpoints = argc > 4 ? atoi(argv[4]) : 1;
    long compute_ms = argc > 5 ? atol(argv[5]) : 0;
    int is_one = strchr(argv[1], ',') == NULL;
    for (char *kind = strtok(argv[1], ","); kind != NULL; kind = strtok(NULL, ",")) {
        snprintf(path, sizeof path, is_one ? "%s" : "%s-%s", argv[2], kind);
        run(kind, path, argc > 6 ? argv[6] : NULL, rows, checkpoints, compute_ms);
    }
    MPI_Finalize();
    return 0;
}
