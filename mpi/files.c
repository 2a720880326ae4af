/* Turns for files that MPI-IO writes: which, from when, until when.
 *
 * A turn is only ever taken in calls that are collective and may block, so no rank waits for one that does not come. IOGATE_MPI_TURN says
 * what it is for:
 *
 *   burst       from a collective write to the file's close or sync, or until IOGATE_IDLE has passed without another one
 *   file        from open to close
 *   collective  one collective write
 *   none        nothing
 *
 * While a communicator has its turn, all of its processes are inside (iogate_enter), so that the preload library lets their writes pass. What
 * is written outside of a turn, by independent calls, is that library's business: each process takes its turn itself, as one of its job. */
#define _GNU_SOURCE
#include "shim.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Thread_local int shim_depth;

/* A file whose output is bulk, open for writing. */
struct file {
    struct file *next;
    MPI_File handle;
    MPI_Comm comm; /* The file's own: nothing that the program sends can meet what goes on here. */
    int rank;
    char *path;        /* Of rank 0; the others have none. */
    iogate_turn *turn; /* Of rank 0. */
    int is_inside;
    int writing; /* Collective writes underway. */
    struct timespec idle_since;
};

static enum turn_mode mode;
static struct timespec idle = {.tv_sec = 2};

/* For the list and all that changes in it. Never held while MPI or a coordinator is waited for. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct file *files;

/* Ends turns that are idle. */
static pthread_t watcher;
static pthread_cond_t changed;
static int is_watched, is_over;

/* --- Settings */

static int is_set(const char *value)
{
    return value != NULL && *value != '\0';
}

/* A duration such as 250ms. */
static int duration(const char *text, struct timespec *out)
{
    static const struct {
        const char *name;
        double ns;
    } UNITS[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}};
    char *unit;
    double number = strtod(text, &unit);
    for (size_t i = 0; i < sizeof UNITS / sizeof *UNITS; i++)
        if (unit != text && number >= 0 && number * UNITS[i].ns < 9e18 && strcmp(unit, UNITS[i].name) == 0) {
            long long ns = (long long)(number * UNITS[i].ns);
            *out = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
            return 1;
        }
    return 0;
}

enum turn_mode turns_wanted(void)
{
    static const char *const NAMES[] = {
        [TURN_NONE] = "none", [TURN_BURST] = "burst", [TURN_FILE] = "file", [TURN_COLLECTIVE] = "collective"};
    const char *policy = getenv("IOGATE_POLICY"), *wanted = getenv("IOGATE_MPI_TURN"), *after = getenv("IOGATE_IDLE");
    const struct turns_api *turns;

    if (is_set(policy) ? strcmp(policy, "none") == 0 : !is_set(getenv("IOGATE_COORD")))
        return TURN_NONE;
    turns = turns_api();
    if (turns == NULL || turns->is_bulk == NULL)
        return TURN_NONE;
    if (is_set(after) && !duration(after, &idle))
        fprintf(stderr, "iogate: IOGATE_IDLE: expected a duration such as 250ms, found `%s`; going on with 2s\n", after);
    if (!is_set(wanted))
        return TURN_BURST;
    for (int i = TURN_NONE; i <= TURN_COLLECTIVE; i++)
        if (strcmp(wanted, NAMES[i]) == 0)
            return i;
    fprintf(stderr, "iogate: IOGATE_MPI_TURN: expected burst, file, collective or none, found `%s`; going on with burst\n",
            wanted);
    return TURN_BURST;
}

static int is_strict(void)
{
    static const char *const YES[] = {"1", "true", "yes", "on"};
    const char *strict = getenv("IOGATE_STRICT");
    for (size_t i = 0; strict != NULL && i < sizeof YES / sizeof *YES; i++)
        if (strcmp(strict, YES[i]) == 0)
            return 1;
    return 0;
}

/* --- Turns */

/* Takes a file out of its turn; the lock is held. What is returned is to be ended without it. */
static iogate_turn *take_out(struct file *file)
{
    iogate_turn *turn = file->turn;
    file->turn = NULL;
    if (file->is_inside && mode == TURN_FILE)
        go_outside();
    else if (file->is_inside)
        turns_api()->leave();
    file->is_inside = 0;
    return turn;
}

static void give_back(iogate_turn *turn, const char *path)
{
    if (turn != NULL && turns_api()->release(turn) != 0)
        fprintf(stderr, "iogate: %s: the turn did not last (%s): others may have written at the same time\n",
                path != NULL ? path : "a file", turns_api()->error());
}

/* All ranks have done their part: ends the turn. Collective. */
static void end_turn(struct file *file)
{
    iogate_turn *turn;
    meet(file->comm);
    pthread_mutex_lock(&lock);
    turn = take_out(file);
    pthread_mutex_unlock(&lock);
    give_back(turn, file->path);
}

/* Sees to it that the file has its turn; returns what a call is to fail with if it must not go on without. Collective. */
static int begin_turn(struct file *file)
{
    enum { HAS, NEEDS_NONE, HAS_NOT, FAILS } outcome = HAS;
    if (file->rank == 0 && file->turn == NULL && is_inside()) {
        outcome = NEEDS_NONE;
    } else if (file->rank == 0) {
        iogate_turn *turn, *lost = NULL;
        pthread_mutex_lock(&lock);
        turn = file->turn;
        if (turn != NULL && !turns_api()->is_valid(turn)) {
            lost = take_out(file);
            turn = NULL;
        }
        pthread_mutex_unlock(&lock);
        give_back(lost, file->path);
        if (turn == NULL && turns_api()->acquire(file->path, NULL, &turn) != 0) {
            turn = NULL;
            outcome = is_strict() ? FAILS : HAS_NOT;
            fprintf(stderr, "iogate: %s: no turn: %s\n", file->path, turns_api()->error());
        }
        pthread_mutex_lock(&lock);
        file->turn = turn;
        pthread_mutex_unlock(&lock);
    }
    outcome = share(file->comm, outcome);
    pthread_mutex_lock(&lock);
    if (outcome == HAS && !file->is_inside) {
        if (mode == TURN_FILE)
            come_inside();
        else
            turns_api()->enter();
        file->is_inside = 1;
    } else if (outcome != HAS) {
        take_out(file);
    }
    pthread_mutex_unlock(&lock);
    return outcome == FAILS ? MPI_ERR_IO : MPI_SUCCESS;
}

static struct timespec now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time;
}

static struct timespec later(struct timespec time, struct timespec by)
{
    time.tv_sec += by.tv_sec;
    time.tv_nsec += by.tv_nsec;
    if (time.tv_nsec >= 1000000000) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000;
    }
    return time;
}

static int is_before(struct timespec a, struct timespec b)
{
    return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

/* Ends the turns of files that have been idle for long enough, in every rank for itself. Calls nothing of MPI. */
static void *watch(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!is_over) {
        struct timespec next = {0}, at = now();
        struct file *file;
        for (file = files; file != NULL; file = file->next) {
            struct timespec end;
            if (!file->is_inside || file->writing)
                continue;
            end = later(file->idle_since, idle);
            if (!is_before(at, end))
                break;
            if (next.tv_sec == 0 || is_before(end, next))
                next = end;
        }
        if (file != NULL) {
            iogate_turn *turn = take_out(file);
            char *path = file->path != NULL ? strdup(file->path) : NULL;
            pthread_mutex_unlock(&lock);
            give_back(turn, path);
            free(path);
            pthread_mutex_lock(&lock);
        } else if (next.tv_sec != 0) {
            pthread_cond_timedwait(&changed, &lock, &next);
        } else {
            pthread_cond_wait(&changed, &lock);
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Tells the watcher, which is there once it is needed, of a file that is idle; the lock is held. */
static void tell_watcher(void)
{
    if (!is_watched) {
        sigset_t all, before;
        pthread_condattr_t clock;
        pthread_condattr_init(&clock);
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
        pthread_cond_init(&changed, &clock);
        pthread_condattr_destroy(&clock);
        /* The program's signals are none of its business. */
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        is_watched = pthread_create(&watcher, NULL, watch, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (is_watched)
        pthread_cond_signal(&changed);
}

void turns_start(enum turn_mode agreed)
{
    mode = agreed;
}

void turns_stop(void)
{
    int was_watched;
    pthread_mutex_lock(&lock);
    was_watched = is_watched;
    is_over = 1;
    if (was_watched)
        pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    if (was_watched)
        pthread_join(watcher, NULL);
    /* Those that the program has not closed. */
    for (struct file *file = files; file != NULL; file = file->next)
        give_back(take_out(file), file->path);
    mode = TURN_NONE;
}

/* --- Files */

static struct file *find(MPI_File handle)
{
    struct file *file = NULL;
    if (mode == TURN_NONE || shim_depth > 0)
        return NULL;
    pthread_mutex_lock(&lock);
    for (file = files; file != NULL && file->handle != handle; file = file->next)
        ;
    pthread_mutex_unlock(&lock);
    return file;
}

/* The absolute path of an open file, without the file system that ROMIO lets a name begin with, as in `ufs:/scratch/file`. Null
 * if it leads nowhere. The caller frees it. */
static char *path_of(const char *name)
{
    const char *end = name;
    while (islower((unsigned char)*end) || isdigit((unsigned char)*end))
        end++;
    return realpath(*end == ':' && end - name > 1 ? end + 1 : name, NULL);
}

static void forget(struct file *file)
{
    PMPI_Comm_free(&file->comm);
    free(file->path);
    free(file);
}

int file_opened(MPI_Comm comm, const char *name, int access, MPI_File *handle)
{
    struct file *file;
    char *path = NULL;
    int rank = 0, result;
    if (mode == TURN_NONE || shim_depth > 0 || !(access & (MPI_MODE_WRONLY | MPI_MODE_RDWR)))
        return MPI_SUCCESS;
    PMPI_Comm_rank(comm, &rank);
    if (rank == 0)
        path = path_of(name);
    /* One for all: the ranks might see different directories. */
    if (!share(comm, path != NULL && turns_api()->is_bulk(path) == 1)) {
        free(path);
        return MPI_SUCCESS;
    }
    file = calloc(1, sizeof *file);
    if (file == NULL)
        abort(); /* The other ranks would wait for this one. */
    file->path = path;
    file->rank = rank;
    file->handle = *handle;
    PMPI_Comm_dup(comm, &file->comm);
    if (mode == TURN_FILE) {
        file->writing = 1; /* Never idle. */
        result = begin_turn(file);
        if (result != MPI_SUCCESS) {
            PMPI_File_close(handle);
            forget(file);
            PMPI_File_call_errhandler(MPI_FILE_NULL, result);
            return result;
        }
    }
    pthread_mutex_lock(&lock);
    file->next = files;
    files = file;
    pthread_mutex_unlock(&lock);
    return MPI_SUCCESS;
}

int write_begins(MPI_File handle)
{
    struct file *file = find(handle);
    int result;
    if (file == NULL || mode == TURN_FILE)
        return MPI_SUCCESS;
    pthread_mutex_lock(&lock);
    file->writing++;
    pthread_mutex_unlock(&lock);
    result = begin_turn(file);
    if (result == MPI_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    file->writing--;
    pthread_mutex_unlock(&lock);
    PMPI_File_call_errhandler(handle, result);
    return result;
}

/* A collective write is over. */
static void over(struct file *file)
{
    pthread_mutex_lock(&lock);
    if (file->writing > 0)
        file->writing--;
    file->idle_since = now();
    if (file->is_inside)
        tell_watcher();
    pthread_mutex_unlock(&lock);
}

void write_ended(MPI_File handle)
{
    struct file *file = find(handle);
    if (file == NULL || mode == TURN_FILE)
        return;
    /* A rank's part can be over long before those of the ranks that write for others. */
    if (mode == TURN_COLLECTIVE)
        end_turn(file);
    else
        meet(file->comm);
    over(file);
}

void write_failed(MPI_File handle)
{
    struct file *file = find(handle);
    /* The ranks do not meet: it may have begun in some of them, which then have its end before them. */
    if (file != NULL && mode != TURN_FILE)
        over(file);
}

void file_synced(MPI_File handle)
{
    struct file *file = find(handle);
    if (file != NULL && mode == TURN_BURST)
        end_turn(file);
}

struct file *file_closing(MPI_File handle)
{
    struct file *file = find(handle);
    if (file == NULL)
        return NULL;
    /* Now: when it is closed, its handle may be that of another one at once. */
    pthread_mutex_lock(&lock);
    for (struct file **at = &files; *at != NULL; at = &(*at)->next)
        if (*at == file) {
            *at = file->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    return file;
}

void file_closed(struct file *file)
{
    if (file == NULL)
        return;
    end_turn(file);
    forget(file);
}
