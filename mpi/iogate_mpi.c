/* Gives all processes of an MPI job one application id.
 *
 * Loaded before the MPI library (LD_PRELOAD), it takes the place of MPI_Init: when MPI is up, rank 0 chooses an id, and all
 * ranks take it over. They need it only where the launcher leaves no job id in the environment that iogate knows. The id goes
 *
 *   - into IOGATE_APP, for programs that the job starts;
 *   - to libiogate_preload.so, if that is loaded, by iogate_set_app();
 *   - to iogate mounts of this machine, by an extended attribute of their roots.
 *
 * An IOGATE_APP that is set already stays. Build it with each MPI's own compiler: mpi/build does.
 *
 * Then the ranks agree on how to take turns: turns.c has those of communicators, files.c says which files take one and when, calls.c and
 * fortran.c are the functions that programs call. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <mntent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/xattr.h>
#include <time.h>

/* Ids of words and chosen ones have a range of their own, away from job numbers (crates/iogate-net/src/app.rs). */
#define CHOSEN 0xC0000000u
#define MOUNT_TYPE "fuse.iogate"
#define MOUNT_ATTRIBUTE "user.iogate.app"

static uint32_t choose(void)
{
    uint32_t id = 0;
    if (getrandom(&id, sizeof id, 0) != sizeof id)
        id = (uint32_t)time(NULL);
    return id | CHOSEN;
}

static void tell_mounts(const char *text)
{
    struct mntent entry;
    char strings[8192], name[64], value[16];
    FILE *mounts = setmntent("/proc/self/mounts", "r");
    if (mounts == NULL)
        return;
    /* Read, not set: to set one takes permission to write the root. Best effort. */
    snprintf(name, sizeof name, "%s.%s", MOUNT_ATTRIBUTE, text);
    while (getmntent_r(mounts, &entry, strings, sizeof strings) != NULL)
        if (strcmp(entry.mnt_type, MOUNT_TYPE) == 0)
            getxattr(entry.mnt_dir, name, value, sizeof value);
    endmntent(mounts);
}

/* Agrees on an id. */
static void agree_on_id(void)
{
    void (*set_app)(uint32_t) = NULL;
    uint32_t id = 0;
    int rank = 0;
    char text[16];

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        id = choose();
    PMPI_Bcast(&id, 1, MPI_UINT32_T, 0, MPI_COMM_WORLD);
    snprintf(text, sizeof text, "%u", id);
    setenv("IOGATE_APP", text, 1);
    *(void **)&set_app = dlsym(RTLD_DEFAULT, "iogate_set_app");
    if (set_app != NULL)
        set_app(id);
    tell_mounts(text);
}

void mpi_started(void)
{
    const char *app = getenv("IOGATE_APP");
    enum turn_mode mode = turns_wanted();
    /* All or none: a rank whose environment the launcher did not pass on must not be alone. */
    int own[] = {app != NULL && *app != '\0', mode, -(int)mode}, least[] = {0, 0, 0};

    PMPI_Allreduce(own, least, 3, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!least[0])
        agree_on_id();
    if (least[1] == -least[2])
        turns_start(mode);
}

int MPI_Init(int *argc, char ***argv)
{
    int result = PMPI_Init(argc, argv);
    if (result == MPI_SUCCESS && shim_depth == 0)
        mpi_started();
    return result;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int result = PMPI_Init_thread(argc, argv, required, provided);
    if (result == MPI_SUCCESS && shim_depth == 0)
        mpi_started();
    return result;
}

int MPI_Finalize(void)
{
    turns_stop();
    return PMPI_Finalize();
}
