/* Turns on shared storage for jobs: link with -liogate_turn. Safe to call from any thread.
 *
 * Settings come from the environment, as `iogate run` sets them: IOGATE_COORD, IOGATE_POLICY, ... (docs/turns.md has all).
 * Where no coordinator can be reached, and IOGATE_STRICT is not 1, a turn begins without one after IOGATE_PATIENCE, with a
 * line on standard error: a checkpoint is never lost for want of a turn. */
#ifndef IOGATE_H
#define IOGATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct iogate_turn iogate_turn;

/* What a turn is for. All zero (or a null pointer) is right for most. */
typedef struct iogate_wish {
    size_t size;             /* sizeof(iogate_wish), so that later versions can have more. */
    const uint32_t *targets; /* Targets of the file system, ascending; null: all. */
    size_t target_count;
    uint64_t bytes;          /* Bytes that will be written; 0: unknown. */
    uint32_t weight;         /* Share among jobs, where the coordinator goes by weights; 0: IOGATE_WEIGHT, or else 1. */
    uint64_t timeout_ns;     /* How long to wait for the turn at most; 0: as long as it takes. */
} iogate_wish;

/* Waits until it is this process's turn on the file system of `path` (or the target of that name, if it has no slash).
 * Returns 0 and a turn, which iogate_release() ends; -1 and errno: ETIMEDOUT (timeout_ns is over), EDEADLK (this process has
 * claimed it already, alone), EHOSTUNREACH (no coordinator, strict), EINVAL, ENOENT (the coordinator knows no such target).
 * With a policy that has backoff, the file system is probed too. */
int iogate_acquire(const char *path, const iogate_wish *wish, iogate_turn **turn);

/* Ends a turn and frees it. Returns 0; -1 and ESTALE if it had been lost before (its lease ended, or it was taken away):
 * others may have written at the same time. A null pointer is no turn, and no error. */
int iogate_release(iogate_turn *turn);

/* The turn's fencing token, larger than that of every turn before it; 0 if no coordinator gave it. */
uint64_t iogate_token(const iogate_turn *turn);

/* 1 while the turn counts; 0 once it is lost, and of a null pointer, which is no turn. */
int iogate_is_valid(const iogate_turn *turn);

/* Probes the file system of `path` and backs off until it is quiet, or it has tried often enough. Returns the number of attempts, 0 if
 * the file system is not calibrated; -1 and errno: EACCES, EROFS, ENOSPC, ... (the directory cannot be written to), ENODATA (not calibrated, strict). */
int iogate_probe(const char *path);

/* While the number of enters is larger than that of leaves, the process counts as in a turn that somebody else holds for it (rank 0
 * of its communicator): its writes are then nobody else's business. */
void iogate_enter(void);
void iogate_leave(void);

/* 1 if what is written to the file counts as bulk output (IOGATE_FILES); 0 if it does not, or there is no such file. Only in
 * libiogate_preload.so, which goes by it: for libraries that take turns for it. */
int iogate_is_bulk(const char *path);

/* What went wrong last in this thread, for people; empty if nothing did. Valid until the thread's next call. */
const char *iogate_error(void);

#ifdef __cplusplus
}
#endif
#endif
