/* What AGIOS's interface carries: c-agios CONFIG REQUESTS PRODUCERS, and prints requests a second, and nanoseconds
 * of processor time a request, of all threads.
 *
 * As c-gate: producers read 4 KiB at random offsets of 32 files at random; the callback releases at once. */
#include <agios.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define FILES 32
#define BYTES 4096

static char names[FILES][16];
static int64_t each, all;
static int64_t *places;
static _Atomic int64_t over;
static pthread_barrier_t begin;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *process(int64_t identifier) {
    int64_t place = places[identifier];
    if (!agios_release_request(names[place % FILES], RT_READ, BYTES, place / FILES * BYTES))
        abort();
    atomic_fetch_add(&over, 1);
    return NULL;
}

static void *producer(void *of) {
    int64_t first = (int64_t)(intptr_t)of * each;
    pthread_barrier_wait(&begin);
    for (int64_t i = first; i < first + each; i++)
        if (!agios_add_request(names[places[i] % FILES], RT_READ, places[i] / FILES * BYTES, BYTES, i, 0))
            abort();
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 4)
        return fprintf(stderr, "expected CONFIG REQUESTS PRODUCERS\n"), 2;
    int producers = atoi(arguments[3]);
    if (producers < 1 || producers > 64)
        return fprintf(stderr, "expected 1 to 64 producers\n"), 2;
    each = atoll(arguments[2]) / producers;
    all = each * producers;
    places = malloc(sizeof *places * (size_t)(all + 1));
    uint64_t random = 88172645463325252u;
    for (int64_t i = 0; i < all; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        places[i] = (int64_t)(random >> 16) % ((1 << 20) * FILES);
    }
    for (int i = 0; i < FILES; i++)
        snprintf(names[i], sizeof names[i], "file.%d", i);
    if (!agios_init(process, NULL, arguments[1], 0))
        return fprintf(stderr, "c-agios: %s\n", agios_error()), 1;
    pthread_barrier_init(&begin, NULL, (unsigned)producers + 1);
    pthread_t threads[64];
    for (int i = 0; i < producers; i++)
        pthread_create(&threads[i], NULL, producer, (void *)(intptr_t)i);
    pthread_barrier_wait(&begin);
    double began = now();
    for (int i = 0; i < producers; i++)
        pthread_join(threads[i], NULL);
    while (atomic_load(&over) < all)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    double rate = (double)all / (now() - began);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e9 +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e3;
    printf("%.0f|%.0f\n", rate, cpu / (double)all);
    agios_exit();
    free(places);
    return 0;
}
