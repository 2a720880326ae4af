/* Uses the functions of agios.h: `agios MODE CONFIG`. Exit status 0 if all is as it should be. */
#include <agios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #what, agios_error());         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define THREADS 4
#define EACH 100
#define BYTES 4096

static char *config;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int over, by_init, by_thread[THREADS], with_info, lists, seen[8192];
static int64_t order[64];
static pthread_t workers[THREADS * EACH];

static void note(int *count) {
    pthread_mutex_lock(&lock);
    ++*count;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for(int *count, int least) {
    pthread_mutex_lock(&lock);
    while (*count < least)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- The calls of the multi-callback test: a callback by the thread that adds, or init's; each request is processed by a thread. */
static int64_t offset_of(int64_t identifier) { return (identifier + 1) * BYTES; }
static int32_t type_of(int64_t identifier) { return identifier % 3 ? RT_READ : RT_WRITE; }

static void *process(void *of) {
    int64_t identifier = (int64_t)(intptr_t)of;
    usleep((unsigned)(identifier * 37 % 500));
    CHECK(agios_release_request("file.0.out", type_of(identifier), BYTES, offset_of(identifier)));
    note(&over);
    return NULL;
}

static void begin(int64_t identifier) {
    CHECK(pthread_create(&workers[identifier], NULL, process, (void *)(intptr_t)identifier) == 0);
}

static void *of_init(int64_t identifier) { note(&by_init); begin(identifier); return NULL; }
static void *of_0(int64_t identifier) { CHECK(identifier / EACH == 0); note(&by_thread[0]); begin(identifier); return NULL; }
static void *of_1(int64_t identifier) { CHECK(identifier / EACH == 1); note(&by_thread[1]); begin(identifier); return NULL; }
static void *of_2(int64_t identifier) { CHECK(identifier / EACH == 2); note(&by_thread[2]); begin(identifier); return NULL; }
static void *of_3(int64_t identifier) { CHECK(identifier / EACH == 3); note(&by_thread[3]); begin(identifier); return NULL; }

static void *adds(void *of) {
    int me = (int)(intptr_t)of;
    void *(*mine[])(int64_t) = {of_0, of_1, of_2, of_3};
    for (int64_t identifier = me * EACH; identifier < (me + 1) * EACH; identifier++) {
        void *this_one = identifier % 5 ? (void *)mine[me] : NULL;
        CHECK(agios_add_request("file.0.out", type_of(identifier), offset_of(identifier), BYTES, identifier, 0, this_one));
    }
    return NULL;
}

static void multi(void) {
    /* Also after an exit. */
    for (int round = 1; round <= 3; round++) {
        over = by_init = 0;
        memset(by_thread, 0, sizeof by_thread);
        CHECK(agios_init(of_init, NULL, config, 1));
        pthread_t threads[THREADS];
        for (intptr_t i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, adds, (void *)i) == 0);
        wait_for(&over, THREADS * EACH);
        agios_exit();
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < THREADS * EACH; i++)
            pthread_join(workers[i], NULL);
        CHECK(by_init == THREADS * EACH / 5);
        for (int i = 0; i < THREADS; i++)
            CHECK(by_thread[i] == EACH - EACH / 5);
    }
}

/* ---- By value, with lists; and with a pointer of its own. */
static void *one_at_once(int64_t identifier) {
    order[over] = identifier;
    CHECK(agios_release_request("f", RT_READ, 10, identifier * 10));
    note(&over);
    return NULL;
}

static void *several(int64_t *identifiers, int32_t count) {
    lists++;
    for (int32_t i = 0; i < count; i++) {
        CHECK(i == 0 || identifiers[i] == identifiers[i - 1] + 1);
        one_at_once(identifiers[i]);
    }
    return NULL;
}

static void *with(int64_t identifier, void *info) {
    CHECK(info == &seen[identifier]);
    note(&with_info);
    return one_at_once(identifier);
}

/* Keeps what it is given until the test releases it. */
static int kept;
static void *keep(int64_t identifier) {
    order[kept] = identifier;
    note(&kept);
    return NULL;
}

static void values(void) {
    CHECK(agios_init(one_at_once, several, config, 0));
    for (int64_t i = 0; i < 20; i++)
        CHECK(agios_add_request("f", RT_READ, i * 10, 10, i, 0));
    wait_for(&over, 20);
    CHECK(lists >= 1 && lists <= 20);
    for (int64_t i = 20; i < 40; i++)
        CHECK(agios_add_request("f", RT_READ, i * 10, 10, i, 0, with, &seen[i]));
    wait_for(&over, 40);
    CHECK(with_info == 20);
    struct agios_metrics_t *metrics = agios_get_metrics_and_reset();
    CHECK(metrics && metrics->total_reqnb == 40 && metrics->reads == 40 && metrics->writes == 0);
    CHECK(metrics->avg_request_size == 10 && metrics->max_request_size == 10 && metrics->filenb == 1);
    CHECK(metrics->avg_offset_distance == 10 && metrics->served_bytes == 400);
    free(metrics);
    metrics = agios_get_metrics_and_reset();
    CHECK(metrics && metrics->total_reqnb == 0 && metrics->served_bytes == 0);
    free(metrics);
    agios_exit();
    CHECK(agios_get_metrics_and_reset() == NULL);
}

/* The first piece of a sequence goes on after its wait only: the configuration says 300 ms. */
static void waits(void) {
    CHECK(agios_init(one_at_once, NULL, config, 0));
    for (int64_t i = 0; i < 4; i++) {
        CHECK(agios_add_request("f", RT_READ, i * 10, 10, i, 0));
        wait_for(&over, (int)i + 1);
    }
    /* The file has shown a sequence: another one waits for its next piece. */
    uint64_t began = now_ns();
    CHECK(agios_add_request("other", RT_READ, 0, 10, 7, 0, (void *)keep));
    wait_for(&kept, 1);
    CHECK(now_ns() - began >= 250000000u);
    CHECK(agios_release_request("other", RT_READ, 10, 0));
    agios_exit();
}

static void idle(void) {
    CHECK(agios_init(one_at_once, NULL, config, 0));
    CHECK(agios_add_request("f", RT_READ, 0, 10, 0, 0));
    wait_for(&over, 1);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    usleep(500000);
    getrusage(RUSAGE_SELF, &after);
    CHECK(after.ru_nvcsw - before.ru_nvcsw < 20);
    int64_t used = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 + after.ru_utime.tv_usec - before.ru_utime.tv_usec;
    CHECK(used < 100000);
    agios_exit();
}

/* The configuration is TO: what overlaps waits, so that it can be cancelled. */
static void cancel(void) {
    CHECK(agios_init(keep, NULL, config, 0));
    CHECK(agios_add_request("a", RT_WRITE, 0, 10, 0, 0));
    CHECK(agios_add_request("b", RT_WRITE, 0, 10, 1, 0));
    wait_for(&kept, 2);
    for (int64_t i = 2; i < 5; i++) {
        CHECK(agios_add_request("a", RT_WRITE, 0, 10, i, 0));
        CHECK(agios_add_request("b", RT_WRITE, 0, 10, i + 10, 0));
    }
    /* Not what is out, nor of another file, type, length or offset. */
    CHECK(!agios_cancel_request("c", RT_WRITE, 10, 0));
    CHECK(!agios_cancel_request("a", RT_READ, 10, 0));
    CHECK(!agios_cancel_request("a", RT_WRITE, 9, 0));
    CHECK(!agios_cancel_request("a", RT_WRITE, 10, 1));
    for (int i = 0; i < 3; i++)
        CHECK(agios_cancel_request("a", RT_WRITE, 10, 0));
    CHECK(!agios_cancel_request("a", RT_WRITE, 10, 0));
    CHECK(strstr(agios_error(), "no such request waits"));
    CHECK(agios_release_request("a", RT_WRITE, 10, 0));
    CHECK(!agios_release_request("a", RT_WRITE, 10, 0));
    for (int i = 3; i <= 5; i++) {
        CHECK(agios_release_request("b", RT_WRITE, 10, 0));
        wait_for(&kept, i);
        CHECK(order[i - 1] == 10 + i - 1);
    }
    CHECK(agios_release_request("b", RT_WRITE, 10, 0));
    agios_exit();
    CHECK(kept == 5);
}

static void *exits(int64_t identifier) {
    agios_exit();
    CHECK(agios_init(keep, NULL, config, 0));
    CHECK(agios_add_request("f", RT_READ, 0, 10, identifier + 1, 0));
    return NULL;
}

static void errors(void) {
    CHECK(!agios_add_request("f", RT_READ, 0, 10, 0, 0) && strstr(agios_error(), "agios_init"));
    CHECK(!agios_release_request("f", RT_READ, 10, 0) && !agios_cancel_request("f", RT_READ, 10, 0));
    agios_exit();
    CHECK(!agios_init(keep, NULL, "/nonexistent/agios.conf", 0) && strstr(agios_error(), "/nonexistent"));
    CHECK(!agios_init(keep, NULL, config, -1) && strstr(agios_error(), "max_queue_id is -1"));
    CHECK(agios_init(NULL, NULL, config, 2));
    CHECK(!agios_init(keep, NULL, config, 2) && strstr(agios_error(), "it is started"));
    CHECK(!agios_add_request("f", RT_READ, 0, 10, 0, 0) && strstr(agios_error(), "no callback"));
    CHECK(!agios_add_request(NULL, RT_READ, 0, 10, 0, 0, keep) && strstr(agios_error(), "null"));
    CHECK(!agios_add_request("f", 2, 0, 10, 0, 0, keep) && strstr(agios_error(), "type is 2"));
    CHECK(!agios_add_request("f", RT_READ, -1, 10, 0, 0, keep) && strstr(agios_error(), "offset is -1"));
    CHECK(!agios_add_request("f", RT_READ, 0, 0, 0, 0, keep) && strstr(agios_error(), "len is 0"));
    CHECK(!agios_add_request("f", RT_READ, 0, 1ll << 32, 0, 0, keep) && strstr(agios_error(), "len is 4294967296"));
    CHECK(!agios_add_request("f", RT_READ, 0, 10, 0, 2, keep) && strstr(agios_error(), "queue_id is 2: expected 0 to 1"));
    CHECK(!agios_add_request("f", RT_READ, 0, 10, 0, -1, keep));
    CHECK(!agios_release_request(NULL, RT_READ, 10, 0) && !agios_cancel_request("f", 9, 10, 0));
    /* With a request out, and ones that wait. */
    CHECK(agios_add_request("f", RT_WRITE, 0, 10, 0, 1, keep));
    CHECK(agios_add_request("f", RT_WRITE, 0, 10, 1, 1, keep));
    wait_for(&kept, 1);
    agios_exit();
    agios_exit();
    /* From a callback. */
    CHECK(agios_init(exits, NULL, config, 0));
    CHECK(agios_add_request("f", RT_READ, 0, 10, 5, 0));
    wait_for(&kept, 2);
    CHECK(order[1] == 6);
    agios_exit();
}

/* Ids of queues are applications, or nothing. */
static void queues(void) {
    CHECK(agios_init(keep, NULL, config, 10000));
    CHECK(agios_add_request("f", RT_READ, 0, 10, 7, 9999));
    wait_for(&kept, 1);
    CHECK(order[0] == 7);
    CHECK(!agios_add_request("f", RT_READ, 0, 10, 8, 10000) && strstr(agios_error(), "expected 0 to 9999"));
    CHECK(agios_release_request("f", RT_READ, 10, 0));
    agios_exit();
}

/* They are servers: the configuration is TWINS. */
static void servers(void) {
    CHECK(!agios_init(keep, NULL, config, 4097) && strstr(agios_error(), "max_queue_id is 4097") && strstr(agios_error(), "4096"));
    CHECK(agios_init(keep, NULL, config, 4096));
    CHECK(agios_add_request("f", RT_READ, 0, 10, 7, 4095));
    wait_for(&kept, 1);
    CHECK(agios_release_request("f", RT_READ, 10, 0));
    agios_exit();
}

static void forks(void) {
    CHECK(agios_init(keep, NULL, config, 0));
    CHECK(agios_add_request("f", RT_READ, 0, 10, 0, 0));
    wait_for(&kept, 1);
    pid_t child = fork();
    if (child == 0) {
        CHECK(!agios_add_request("f", RT_READ, 0, 10, 0, 0) && strstr(agios_error(), "after fork"));
        CHECK(!agios_release_request("f", RT_READ, 10, 0));
        CHECK(agios_init(keep, NULL, config, 0));
        CHECK(agios_add_request("f", RT_READ, 0, 10, 1, 0));
        wait_for(&kept, 2);
        agios_exit();
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(agios_release_request("f", RT_READ, 10, 0));
    agios_exit();
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    const char *mode = arguments[1];
    config = arguments[2];
    if (!strcmp(mode, "multi")) multi();
    else if (!strcmp(mode, "values")) values();
    else if (!strcmp(mode, "waits")) waits();
    else if (!strcmp(mode, "idle")) idle();
    else if (!strcmp(mode, "cancel")) cancel();
    else if (!strcmp(mode, "errors")) errors();
    else if (!strcmp(mode, "queues")) queues();
    else if (!strcmp(mode, "servers")) servers();
    else if (!strcmp(mode, "fork")) forks();
    else return 2;
    return 0;
}
