/* What the C library carries: c-gate FORM SCHEDULER REQUESTS PRODUCERS, and prints requests a second, and nanoseconds
 * of processor time a request, of all threads.
 *
 * Producers read 4 KiB at random offsets of 32 files at random; nothing is read. FORM: `carry-out` and `start` are an engine's two ways,
 * `start` with the completion in it; `hand` is one thread with a gate by hand, without a lock that others want (PRODUCERS is 1). */
#include <errno.h>
#include <iogate_gate.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define FILES 32
#define BYTES 4096
/* By hand: submitted before the gate is asked. */
#define BATCH 32

static iogate_engine *engine;
static uint64_t each;
static _Atomic uint64_t over;
static pthread_barrier_t begin;

static void fail(const char *what) {
    fprintf(stderr, "c-gate: %s: %s\n", what, iogate_gate_error());
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int64_t carry_out(void *user, const iogate_dispatch *dispatch) {
    (void)user;
    return (int64_t)dispatch->bytes;
}

static void start(void *user, const iogate_dispatch *dispatch) {
    (void)user;
    if (iogate_engine_complete(engine, dispatch->id, dispatch->bytes, 0) != 0)
        fail("complete");
}

/* Counts are each thread's own until it ends: what is measured is the library. */
static _Thread_local uint64_t mine;

static void done(void *user, int64_t result) {
    (void)user;
    if (result != BYTES)
        fail("a request");
    mine++;
}

static iogate_request next(uint64_t *random) {
    *random ^= *random << 13, *random ^= *random >> 7, *random ^= *random << 17;
    iogate_request request = {.size = sizeof request, .file = *random % FILES + 1, .op = IOGATE_READ, .bytes = BYTES};
    request.offset = (*random >> 16) % (1 << 20) * BYTES;
    request.app = (uint32_t)(*random >> 5) % 4 + 1;
    request.done = done;
    return request;
}

static void *producer(void *of) {
    uint64_t random = 88172645463325252u + (uint64_t)(intptr_t)of * 7919;
    pthread_barrier_wait(&begin);
    for (uint64_t i = 0; i < each; i++) {
        iogate_request request = next(&random);
        if (iogate_engine_submit(engine, &request, NULL) != 0)
            fail("submit");
    }
    atomic_fetch_add(&over, mine);
    return NULL;
}

static double by_engine(int starts, const char *scheduler, uint64_t requests, int producers) {
    iogate_engine_config config = {.size = sizeof config, .flags = starts ? 0 : IOGATE_QUICK};
    config.carry_out = starts ? NULL : carry_out;
    config.start = starts ? start : NULL;
    config.gate = (iogate_gate_config){.size = sizeof config.gate, .scheduler = scheduler, .depth = 32, .queue_max = 1024};
    if (iogate_engine_new(&config, &engine) != 0)
        fail(scheduler);
    each = requests / (uint64_t)producers;
    pthread_barrier_init(&begin, NULL, (unsigned)producers + 1);
    pthread_t threads[64];
    for (int i = 0; i < producers; i++)
        pthread_create(&threads[i], NULL, producer, (void *)(intptr_t)i);
    pthread_barrier_wait(&begin);
    double began = now();
    for (int i = 0; i < producers; i++)
        pthread_join(threads[i], NULL);
    while (iogate_engine_len(engine) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    double took = now() - began;
    if (iogate_engine_free(engine) != 0)
        fail("free");
    return (double)(each * (uint64_t)producers) / took;
}

static double by_hand(const char *scheduler, uint64_t requests) {
    iogate_gate_config config = {.size = sizeof config, .scheduler = scheduler, .depth = 32, .queue_max = 1024};
    iogate_gate *gate;
    if (iogate_gate_new(&config, &gate) != 0)
        fail(scheduler);
    uint64_t random = 88172645463325252u, submitted = 0;
    double began = now();
    while (submitted < requests || iogate_gate_len(gate) > 0) {
        for (int i = 0; i < BATCH && submitted < requests; i++, submitted++) {
            iogate_request request = next(&random);
            request.done = NULL;
            int error = iogate_gate_submit(gate, IOGATE_NOW, &request, NULL);
            if (error == EAGAIN)
                break;
            if (error)
                fail("submit");
        }
        for (;;) {
            iogate_decision decision = {.size = sizeof decision};
            if (iogate_gate_next(gate, IOGATE_NOW, &decision) != 0)
                fail("next");
            if (decision.kind != IOGATE_DISPATCH)
                break;
            if (iogate_gate_complete(gate, IOGATE_NOW, decision.dispatch.id, decision.dispatch.bytes, 0) != 0)
                fail("complete");
        }
    }
    double took = now() - began;
    iogate_gate_free(gate);
    return (double)requests / took;
}

int main(int count, char **arguments) {
    if (count != 5)
        return fprintf(stderr, "expected FORM SCHEDULER REQUESTS PRODUCERS\n"), 2;
    uint64_t requests = strtoull(arguments[3], NULL, 10);
    int producers = atoi(arguments[4]);
    double rate;
    if (producers < 1 || producers > 64 || requests == 0)
        return fprintf(stderr, "expected requests, and 1 to 64 producers\n"), 2;
    if (!strcmp(arguments[1], "hand"))
        rate = by_hand(arguments[2], requests);
    else
        rate = by_engine(!strcmp(arguments[1], "start"), arguments[2], requests, producers);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e9 +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e3;
    printf("%.0f|%.0f\n", rate, cpu / (double)requests);
    return 0;
}
