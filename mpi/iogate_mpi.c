/* Gives all processes of an MPI job one application id.
 *
 * Loaded before the MPI library (LD_PRELOAD), it takes the place of MPI_Init: when MPI is up, rank 0 chooses an id, and all
 * ranks take it over. They need it only where the launcher leaves no job id in the environment that iogate knows. The id goes
 *
 *   - into IOGATE_APP, for programs that the job starts;
 *   - into IOGATE_JOB, where nothing else names the job: its processes are then one party when they take turns;
 *   - to libiogate_preload.so, if that is loaded, by iogate_set_app();
 *   - to iogate mounts of this machine, by an extended attribute of their roots.
 *
 * What is set already stays. Build it with each MPI's own compiler: mpi/build does.
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

/* Ids of words and chosen ones have a range of their own, away from job numbers (crates/iogate-vfs/src/app.rs). */
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

/* Whether the environment names the job, for its party: as in crates/iogate-turn/src/settings.rs. */
static int is_named(void)
{
    static const char *const JOBS[] = {"IOGATE_JOB",     "SLURM_JOB_ID",            "FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID",
                                       "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"};
    for (size_t i = 0; i < sizeof JOBS / sizeof *JOBS; i++) {
        const char *job = getenv(JOBS[i]);
        if (job != NULL && *job != '\0')
            return 1;
    }
    return 0;
}

/* Agrees on an id, which stands for whatever has no name yet. */
static void agree_on_id(int has_app, int has_job)
{
    void (*set_app)(uint32_t) = NULL;
    uint32_t id = 0;
    int rank = 0;
    char text[16], name[24];

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        id = choose();
    PMPI_Bcast(&id, 1, MPI_UINT32_T, 0, MPI_COMM_WORLD);
    snprintf(text, sizeof text, "%u", id);
    if (!has_job) {
        snprintf(name, sizeof name, "mpi-%u", id);
        setenv("IOGATE_JOB", name, 1);
    }
    if (has_app)
        return;
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
    int own[] = {app != NULL && *app != '\0', is_named(), mode, -(int)mode}, least[4] = {0};

    PMPI_Allreduce(own, least, 4, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!least[0] || !least[1])
        agree_on_id(least[0], least[1]);
    if (least[2] == -least[3])
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
