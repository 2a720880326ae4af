/* Turns of communicators: rank 0 takes one, the others wait for it to say how that went. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "iogate_mpi.h"

enum { SPINS = 2000, NAP_NS = 500 * 1000 };

static struct turns_api api;
static int has_api;

static void look_for_api(void)
{
    void *library = RTLD_DEFAULT;
    Dl_info own;
    char path[PATH_MAX];

    if (dlsym(library, "iogate_acquire") == NULL) {
        const char *slash = NULL;
        library = NULL;
        if (dladdr((void *)&api, &own) != 0 && (slash = strrchr(own.dli_fname, '/')) != NULL) {
            snprintf(path, sizeof path, "%.*s/libiogate_turn.so", (int)(slash - own.dli_fname), own.dli_fname);
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        }
        if (library == NULL)
            library = dlopen("libiogate_turn.so", RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            return;
    }
    *(void **)&api.acquire = dlsym(library, "iogate_acquire");
    *(void **)&api.release = dlsym(library, "iogate_release");
    *(void **)&api.is_valid = dlsym(library, "iogate_is_valid");
    *(void **)&api.probe = dlsym(library, "iogate_probe");
    *(void **)&api.enter = dlsym(library, "iogate_enter");
    *(void **)&api.leave = dlsym(library, "iogate_leave");
    *(void **)&api.error = dlsym(library, "iogate_error");
    *(void **)&api.is_bulk = dlsym(library, "iogate_is_bulk");
    has_api = api.acquire && api.release && api.is_valid && api.probe && api.enter && api.leave && api.error;
}

const struct turns_api *turns_api(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look_for_api);
    return has_api ? &api : NULL;
}

/* Completes a collective operation that may have to wait for another job's turn to end. */
static void complete(MPI_Request *request)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    for (int tries = 0, done = 0;; tries++) {
        if (PMPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done)
            return;
        if (tries > SPINS)
            nanosleep(&nap, NULL);
    }
}

int share(MPI_Comm comm, int value)
{
    MPI_Request request;
    if (PMPI_Ibcast(&value, 1, MPI_INT, 0, comm, &request) == MPI_SUCCESS)
        complete(&request);
    return value;
}

void meet(MPI_Comm comm)
{
    MPI_Request request;
    if (PMPI_Ibarrier(comm, &request) == MPI_SUCCESS)
        complete(&request);
}

/* --- Turns that the program asks for. */

/* Turns that this process is in until the program ends them. */
static atomic_int inside;

int is_inside(void)
{
    return atomic_load(&inside) > 0;
}

void come_inside(void)
{
    atomic_fetch_add(&inside, 1);
    turns_api()->enter();
}

/* Without having come inside before, it does nothing. */
void go_outside(void)
{
    int before = atomic_load(&inside);
    while (before > 0 && !atomic_compare_exchange_weak(&inside, &before, before - 1))
        ;
    if (before > 0)
        turns_api()->leave();
}

static int rank_in(MPI_Comm comm)
{
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

int iogate_mpi_acquire(MPI_Comm comm, const char *path, const iogate_wish *wish, iogate_turn **turn)
{
    const struct turns_api *turns = turns_api();
    int error = 0;
    *turn = NULL;
    if (rank_in(comm) == 0) {
        if (turns == NULL)
            error = ENOSYS;
        else if (turns->acquire(path, wish, turn) != 0)
            error = errno != 0 ? errno : EIO;
    }
    error = share(comm, error);
    if (error != 0) {
        errno = error;
        return -1;
    }
    if (turns != NULL)
        come_inside();
    return 0;
}

int iogate_mpi_is_valid(MPI_Comm comm, const iogate_turn *turn)
{
    const struct turns_api *turns = turns_api();
    return share(comm, turns != NULL && rank_in(comm) == 0 && turns->is_valid(turn));
}

int iogate_mpi_release(MPI_Comm comm, iogate_turn *turn)
{
    const struct turns_api *turns = turns_api();
    meet(comm);
    if (turns == NULL)
        return 0;
    go_outside();
    return turns->release(turn);
}

int iogate_mpi_probe(MPI_Comm comm, const char *path)
{
    const struct turns_api *turns = turns_api();
    int result = -ENOSYS;
    if (turns != NULL && rank_in(comm) == 0) {
        result = turns->probe(path);
        if (result < 0)
            result = errno != 0 ? -errno : -EIO;
    }
    result = share(comm, result);
    if (result >= 0)
        return result;
    errno = -result;
    return -1;
}

/* --- For the whole job. */

static iogate_turn *world_turn;
/* How often every rank has acquired it and not released it: within a turn a program, or a library of it, may ask for it again. */
static int world_depth;

/* The first directory of IOGATE_PLACES, DIR=NAME[:DIR=NAME...], or the working directory. With a slash: without one it would be a name. */
static const char *world_path(char *memory, size_t size)
{
    const char *places = getenv("IOGATE_PLACES");
    size_t length = places != NULL ? strcspn(places, "=:") : 0;
    if (length == 0 || length >= size)
        return "./";
    memcpy(memory, places, length);
    memory[length] = '\0';
    return memory;
}

static int said(const char *what, int result)
{
    int error = errno;
    if (result < 0 && rank_in(MPI_COMM_WORLD) == 0) {
        const struct turns_api *turns = turns_api();
        const char *text = turns != NULL ? turns->error() : "";
        fprintf(stderr, "iogate: %s: %s\n", what, *text != '\0' ? text : strerror(error));
    }
    errno = error;
    return result;
}

int iogate_mpi_acquire_world(void)
{
    char path[PATH_MAX];
    iogate_turn *turn = NULL;
    int result = 0;
    if (world_depth == 0)
        result = said("no turn",
                      iogate_mpi_acquire(MPI_COMM_WORLD, world_path(path, sizeof path), NULL, &turn));
    if (result != 0)
        return result;
    if (world_depth++ == 0)
        world_turn = turn;
    return 0;
}

int iogate_mpi_release_world(void)
{
    iogate_turn *turn = world_turn;
    if (world_depth > 1) {
        world_depth--;
        return 0;
    }
    world_depth = 0;
    world_turn = NULL;
    return said("the turn did not last", iogate_mpi_release(MPI_COMM_WORLD, turn));
}

int iogate_mpi_probe_world(void)
{
    char path[PATH_MAX];
    return said("not probed", iogate_mpi_probe(MPI_COMM_WORLD, world_path(path, sizeof path)));
}
