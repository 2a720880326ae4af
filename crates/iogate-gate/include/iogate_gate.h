/* The gate of iogate as a library: it decides when, in what order and how aggregated requests reach storage.
 * Link with -liogate_gate. docs/c.md has whole programs.
 *
 * There are two forms. *By hand* (iogate_gate_...): the caller submits requests, asks what to carry out next, carries it out and
 * says that it is over; nothing happens between the calls, and there are no threads. *The engine* (iogate_engine_...): requests are
 * submitted from any thread, and a function of the caller's carries out what the gate says, in the submitting threads or in threads
 * of the engine.
 *
 * Rules for all functions:
 * - A result is 0, or an errno number: EINVAL (wrong input: null pointers, sizes, an unknown scheduler), ESTALE (the handle's
 *   request or dispatch is over), ECHILD (the instance is the parent's, this is its child after fork; it stays unusable here),
 *   ENOTRECOVERABLE (a defect of the library showed itself in this instance: it answers nothing else any more), and what each
 *   function adds. `errno` is not touched. iogate_gate_error() has a line of text about it.
 * - All functions may be called from any thread, several at the same time too. Freeing is the exception: when an instance is
 *   freed no other call with it may be underway, but where its function says otherwise; and none may come later. That cannot be seen by the
 *   library: the instance is memory that is gone.
 * - Inside callbacks all functions may be called, too. Submitting does not wait there, and freeing is deferred until the callback has
 *   returned: those two say how.
 * - Handles of requests and dispatches have a generation: one that is over is not taken for a later one (for 2^32 - 1 uses of its
 *   slot). 0 is never a handle.
 * - Structs that are passed in begin with `size`, which must be their sizeof. What the caller passes is his, is read during the call
 *   and not kept; the pointers `user` and `memory` in it are never followed, only given back.
 * - Strings end with a zero byte. Callbacks must return: no longjmp, no C++ exception may leave them. */
#ifndef IOGATE_GATE_H
#define IOGATE_GATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct iogate_gate iogate_gate;
typedef struct iogate_engine iogate_engine;

/* For `now_ns`: the library reads the clock (monotonic, moved to the Unix epoch once, in nanoseconds). A gate should be given its
 * own times only, or the clock's only; times above INT64_MAX are refused, and a time before an earlier one counts as that. */
#define IOGATE_NOW UINT64_MAX

/* iogate_request.op */
#define IOGATE_READ 0u
#define IOGATE_WRITE 1u

/* iogate_request.flags */
#define IOGATE_HAS_TARGET 1u /* `target` is the request's data server; by hand only. */
#define IOGATE_NONBLOCK 2u   /* EAGAIN instead of waiting for room; the engine only. */

/* iogate_decision.kind */
#define IOGATE_IDLE 0u     /* Nothing to do until the next submit or complete. */
#define IOGATE_DISPATCH 1u /* Carry out `dispatch`, then complete it, and ask again at once. */
#define IOGATE_WAIT 2u     /* Ask again at `until_ns`, or after the next submit or complete. */

/* iogate_engine_config.flags */
#define IOGATE_QUICK 1u /* carry_out never keeps its thread for long: dispatches need no thread each. */

/* A gate's settings. All zero but `size`: fifo, one dispatch at a time, no stripes. */
typedef struct iogate_gate_config {
    size_t size;
    const char *scheduler;     /* NAME or NAME:PARAMETER=VALUE,...: "aioli:quantum_base=64KiB,wait_max=1ms"; null: "fifo". */
    uint32_t depth;            /* Most dispatches in service at once; 0: 1. */
    uint32_t queue_max;        /* Most requests in the gate; 0: 65536. */
    uint64_t run_bytes_max;    /* Aggregation: most bytes of a dispatch, for schedulers that aggregate; 0: theirs. */
    uint32_t run_requests_max; /* Aggregation: most requests of a dispatch; 0: theirs. */
    uint32_t targets;          /* Data servers that files are striped over; 0: 1. */
    uint64_t stripe_bytes;     /* Bytes of a stripe; must not be 0 where `targets` is above 1. */
} iogate_gate_config;

/* The engine's: a request is over. `result` is the bytes transferred (fewer than asked for at the end of a file or of a device), or
 * an errno number below zero; -ECANCELED after iogate_engine_cancel(). Called once, before or after submit has returned, in any
 * thread. It should not block. It may submit (which fails with EAGAIN instead of waiting), complete, cancel, and free. */
typedef void (*iogate_done)(void *user, int64_t result);

/* A read or write of one range of one file. */
typedef struct iogate_request {
    size_t size;
    uint64_t file;      /* Any number: requests of one file have the same one. */
    uint64_t offset;
    uint32_t bytes;     /* Not 0; offset + bytes is at most 2^64 - 1. */
    uint32_t op;        /* IOGATE_READ or IOGATE_WRITE. */
    uint32_t app;       /* The application; 0: unknown. */
    uint32_t client;    /* The client; 0: unknown. */
    uint32_t target;    /* With IOGATE_HAS_TARGET: below 4096. */
    uint32_t flags;
    uint64_t issued_ns; /* When the client issued it, since the Unix epoch; 0: unknown. */
    void *user;         /* Given back in parts, and to `done`. */
    void *memory;       /* Given back in parts, moved on by where the part begins in the request; may be null. */
    iogate_done done;   /* The engine's; null: nobody wants to know. By hand: null. */
} iogate_request;

/* A request's share of a dispatch: all of it, or one stripe of it where the scheduler splits (twins:split=on). */
typedef struct iogate_part {
    uint64_t request; /* The handle. */
    void *user;
    void *memory;
    uint64_t offset;  /* In the file. */
    uint32_t bytes;
    uint32_t reserved;
} iogate_part;

/* What to carry out at once: one request, or a run of contiguous ones. */
typedef struct iogate_dispatch {
    uint64_t id;    /* The handle; 0 in carry_out. */
    uint64_t file;
    uint64_t offset;
    uint64_t bytes; /* Of all parts, which lie one behind another. */
    uint32_t op;
    uint32_t target;
    uint32_t app;   /* Of its first request. */
    uint32_t part_count;
    const iogate_part *parts; /* In offset order. The library's: valid until the dispatch is completed; in carry_out until that returns. */
} iogate_dispatch;

/* What to do now. */
typedef struct iogate_decision {
    size_t size;
    uint32_t kind;
    uint32_t reserved;
    uint64_t until_ns;        /* Of IOGATE_WAIT. */
    const char *reason;       /* Of IOGATE_WAIT: a word, which lives as long as the program. Else null. */
    iogate_dispatch dispatch; /* Of IOGATE_DISPATCH; else all zero. */
} iogate_decision;

/* What went wrong last in this thread, for people: one line, empty if nothing has. The library's; valid until the thread's next call. */
const char *iogate_gate_error(void);

/* The library's version, as "0.2.0". It lives as long as the program. */
const char *iogate_gate_version(void);

/* ---- By hand. Calls with one gate run one after another, whatever the threads. */

/* Makes a gate; it is the caller's, until iogate_gate_free(). `gate` is set to null where this fails. */
int iogate_gate_new(const iogate_gate_config *config, iogate_gate **gate);

/* Frees a gate, with all that is in it; parts of its dispatches go, too. Null is no error. In a child after fork nothing is
 * freed, and the result is ECHILD. */
int iogate_gate_free(iogate_gate *gate);

/* The time that IOGATE_NOW means; 0 for a null pointer. */
uint64_t iogate_gate_now(const iogate_gate *gate);

/* Takes a request, and writes its handle to `id` (which may be null). Then ask iogate_gate_next().
 * EAGAIN: the gate is full, try again after a completion; E2BIG: more stripes than queue_max; ESHUTDOWN: after iogate_gate_drain(). */
int iogate_gate_submit(iogate_gate *gate, uint64_t now_ns, const iogate_request *request, uint64_t *id);

/* What to do now. After each submit, complete, cancel, switch and drain, ask until there is no dispatch any more. */
int iogate_gate_next(iogate_gate *gate, uint64_t now_ns, iogate_decision *decision);

/* A dispatch has been carried out: `bytes` were transferred from its beginning, or `error` is an errno number. Requests of which all
 * bytes have been in completed dispatches are over. ESTALE: it has been completed before. */
int iogate_gate_complete(iogate_gate *gate, uint64_t now_ns, uint64_t dispatch, uint64_t bytes, int error);

/* Takes a request back: no part of it will be handed out. Its place in the order is held until its turn, so that what conflicts with it
 * is not moved; a dispatch with it in the middle comes in pieces, one after another. EBUSY: it is in a dispatch, complete that; ESTALE: it is
 * over; EALREADY: cancelled before. */
int iogate_gate_cancel(iogate_gate *gate, uint64_t request);

/* Changes the scheduler, as iogate_gate_config.scheduler: nothing is lost, and nothing served twice. */
int iogate_gate_switch(iogate_gate *gate, uint64_t now_ns, const char *scheduler);

/* The gate takes no more requests, and does not wait for better ones. */
int iogate_gate_drain(iogate_gate *gate, uint64_t now_ns);

/* Requests in the gate, queued or in service (cancelled ones count until their turn); 0 for a null pointer. */
uint64_t iogate_gate_len(const iogate_gate *gate);

/* Statistics as JSON, written to the caller's `buffer` of `room` bytes with a zero byte at the end. `needed` (may be null) is how many bytes that
 * takes. ERANGE: the room is too small, and nothing is written; `buffer` may be null where `room` is 0. */
int iogate_gate_stats(const iogate_gate *gate, char *buffer, size_t room, size_t *needed);

/* ---- The engine. */

typedef struct iogate_engine_config {
    size_t size;
    iogate_gate_config gate; /* Its `size`, too. Here the scheduler may also be "auto": chosen in use. `depth`: also the most threads. */
    /* One of both; the other one is null. They are called in submitting threads and in the engine's, several at a time if
     * `depth` is above 1. They may submit (EAGAIN instead of waiting), complete, cancel, and free.
     *
     * Carries the dispatch out, and returns the bytes transferred from its beginning, or an errno number below zero. */
    int64_t (*carry_out)(void *user, const iogate_dispatch *dispatch);
    /* Starts the dispatch, which iogate_engine_complete() ends, before this returns or later, in any thread. It should not block. */
    void (*start)(void *user, const iogate_dispatch *dispatch);
    void *user;     /* For both. */
    uint32_t flags; /* IOGATE_QUICK */
    uint32_t reserved;
} iogate_engine_config;

/* Makes an engine and starts its first thread; it is the caller's, until iogate_engine_free(). `engine` is set to null where this
 * fails. EAGAIN: no thread can be started. The engine's own threads have given up the capabilities that pass disk quotas.
 * A defect of the gate ends the process, as nobody would complete its requests. */
int iogate_engine_new(const iogate_engine_config *config, iogate_engine **engine);

/* Takes no more, waits until all that was submitted is over and all callbacks have returned, ends the threads and frees.
 * iogate_engine_complete() may be underway, and must still come for what has been started. Inside a callback this returns at once, and the rest happens behind it: then, too, nothing but
 * iogate_engine_complete() may come. Null is no error. In a child after fork nothing is freed, and the result is ECHILD. EAGAIN: inside a
 * callback, no thread can be started that does the rest; the engine is as it was, and the caller's. */
int iogate_engine_free(iogate_engine *engine);

/* Submits a request (after those of which the call has returned), and writes its handle to `id` (which may be null) before it can be over. Waits while queue_max requests are in
 * the engine; with IOGATE_NONBLOCK and inside callbacks EAGAIN instead. The calling thread may carry out this
 * and other requests. A dispatch that failed or fell short is repeated request by request, so that each has its own result. */
int iogate_engine_submit(iogate_engine *engine, const iogate_request *request, uint64_t *id);

/* A dispatch that `start` was given is over, as in iogate_gate_complete(). May be called in callbacks; in `start`, what follows from it
 * happens when that has returned. */
int iogate_engine_complete(iogate_engine *engine, uint64_t dispatch, uint64_t bytes, int error);

/* Takes a request back, as iogate_gate_cancel(); its `done` comes at its turn, with -ECANCELED. May be called in callbacks. */
int iogate_engine_cancel(iogate_engine *engine, uint64_t request);

/* Changes the scheduler, as iogate_gate_switch(); "auto": chosen from here on. May be called in callbacks. */
int iogate_engine_switch(iogate_engine *engine, const char *scheduler);

/* Requests submitted and not over; 0 for a null pointer. */
uint64_t iogate_engine_len(const iogate_engine *engine);

/* As iogate_gate_stats(). */
int iogate_engine_stats(const iogate_engine *engine, char *buffer, size_t room, size_t *needed);

#ifdef __cplusplus
}
#endif
#endif
