/* An engine with callbacks, as the header says: `engine MODE`. Exit status 0 if all is as it should be. */
#include "check.h"
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

typedef struct scene {
    iogate_engine *engine;
    char bytes[FILE_BYTES];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int over;            /* Requests. */
    int started;         /* Dispatches. */
    uint64_t ids[64];    /* Of dispatches that are not complete. */
    uint64_t lengths[64];
    int held;
    atomic_int inside;
    int64_t last;
} scene;

static scene *scene_new(void) {
    scene *made = calloc(1, sizeof *made);
    CHECK(made);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    return made;
}

static void scene_free(scene *scene) {
    pthread_mutex_destroy(&scene->lock);
    pthread_cond_destroy(&scene->changed);
    free(scene);
}

static void wait_over(scene *scene, int over) {
    pthread_mutex_lock(&scene->lock);
    while (scene->over < over)
        pthread_cond_wait(&scene->changed, &scene->lock);
    pthread_mutex_unlock(&scene->lock);
}

static void make(scene *scene, iogate_engine_config config, const char *scheduler, uint32_t depth) {
    config.size = sizeof config;
    config.gate.size = sizeof config.gate;
    config.gate.scheduler = scheduler;
    config.gate.depth = depth;
    config.user = scene;
    CHECK(iogate_engine_new(&config, &scene->engine) == 0);
}

/* A file in memory; beyond its end nothing can be written, and the last 4 KiB fail. */
static int64_t carry_out(void *user, const iogate_dispatch *dispatch) {
    scene *scene = user;
    CHECK(dispatch->id == 0 && dispatch->part_count > 0 && dispatch->file == 7);
    uint64_t at = dispatch->offset;
    for (uint32_t i = 0; i < dispatch->part_count; i++) {
        const iogate_part *part = &dispatch->parts[i];
        CHECK(part->offset == at && part->memory && part->request);
        if (part->offset + part->bytes > FILE_BYTES - 4096)
            return at > dispatch->offset ? (int64_t)(at - dispatch->offset) : -ENOSPC;
        if (dispatch->op == IOGATE_WRITE)
            memcpy(scene->bytes + part->offset, part->memory, part->bytes);
        else
            memcpy(part->memory, scene->bytes + part->offset, part->bytes);
        at += part->bytes;
    }
    CHECK(at - dispatch->offset == dispatch->bytes);
    return (int64_t)dispatch->bytes;
}

static void note(void *user, int64_t result) {
    scene *scene = user;
    pthread_mutex_lock(&scene->lock);
    scene->over++;
    scene->last = result;
    pthread_cond_broadcast(&scene->changed);
    pthread_mutex_unlock(&scene->lock);
}

/* A request of the scene's file; `done` is told when it is over. */
static iogate_request request_for(scene *scene, uint32_t op, uint64_t offset, uint32_t bytes, void *memory,
                                  iogate_done done) {
    iogate_request request = request_of(7, op, offset, bytes);
    request.memory = memory;
    request.user = scene;
    request.done = done;
    return request;
}

static void expect_failure(void *user, int64_t result) {
    CHECK(result == -ENOSPC);
    note(user, result);
}

typedef struct writer {
    scene *scene;
    int number;
} writer;

static void four_writers(scene *scene, void *(*write)(void *)) {
    pthread_t threads[4];
    writer writers[4];
    for (int i = 0; i < 4; i++) {
        writers[i] = (writer){scene, i};
        CHECK(pthread_create(&threads[i], NULL, write, &writers[i]) == 0);
    }
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

#define CELL 512
#define CELLS 256

static void *write_cells(void *of) {
    writer *writer = of;
    scene *scene = writer->scene;
    char(*memory)[CELL] = malloc(CELLS * CELL);
    for (int i = 0; i < CELLS; i++) {
        memset(memory[i], writer->number * 64 + i % 64, CELL);
        uint64_t offset = (uint64_t)(i * 4 + writer->number) * CELL;
        iogate_request request = request_for(scene, IOGATE_WRITE, offset, CELL, memory[i], note);
        uint64_t id = 0;
        CHECK(iogate_engine_submit(scene->engine, &request, &id) == 0 && id);
    }
    wait_over(scene, 4 * CELLS);
    free(memory);
    return NULL;
}

static void carries_out(const char *scheduler, uint32_t flags) {
    scene *scene = scene_new();
    make(scene, (iogate_engine_config){.carry_out = carry_out, .flags = flags, .gate = {.queue_max = 16}},
         scheduler, 4);
    four_writers(scene, write_cells);
    for (int i = 0; i < 4 * CELLS * CELL; i++)
        CHECK(scene->bytes[i] == (char)(i / CELL % 4 * 64 + i / CELL / 4 % 64));
    /* The end, and what fails beyond. */
    char memory[4096];
    iogate_request request =
        request_for(scene, IOGATE_WRITE, FILE_BYTES - 4096, 4096, memory, expect_failure);
    CHECK(iogate_engine_submit(scene->engine, &request, NULL) == 0);
    wait_over(scene, 4 * CELLS + 1);
    CHECK(iogate_engine_switch(scene->engine, "sjf") == 0);
    FAILS(iogate_engine_complete(scene->engine, 1, 0, 0), ESTALE, "");
    char *json = STATS(scene->engine, engine);
    CHECK(strstr(json, "\"scheduler\":\"sjf\"") && strstr(json, "\"switches\":1"));
    free(json);
    CHECK(iogate_engine_free(scene->engine) == 0);
    CHECK(scene->over == 4 * CELLS + 1);
    scene_free(scene);
}

#define OVER_EACH_OTHER 300

static void *write_over(void *of) {
    writer *writer = of;
    scene *scene = writer->scene;
    char(*memory)[CELL] = malloc(OVER_EACH_OTHER * CELL);
    for (int i = 0; i < OVER_EACH_OTHER; i++) {
        memset(memory[i], i % 128, CELL);
        uint64_t offset = (uint64_t)writer->number * CELL;
        iogate_request request = request_for(scene, IOGATE_WRITE, offset, CELL, memory[i], note);
        CHECK(iogate_engine_submit(scene->engine, &request, NULL) == 0);
    }
    wait_over(scene, 4 * OVER_EACH_OTHER);
    free(memory);
    return NULL;
}

/* What a thread writes over what it has written stays, whoever brings it in. */
static void keeps_order(const char *scheduler, uint32_t flags) {
    scene *scene = scene_new();
    make(scene, (iogate_engine_config){.carry_out = carry_out, .flags = flags, .gate = {.queue_max = 64}},
         scheduler, 4);
    four_writers(scene, write_over);
    for (int i = 0; i < 4 * CELL; i++)
        CHECK(scene->bytes[i] == (OVER_EACH_OTHER - 1) % 128);
    CHECK(iogate_engine_free(scene->engine) == 0);
    scene_free(scene);
}

/* Keeps dispatches, to be completed by others. */
static void keep(void *user, const iogate_dispatch *dispatch) {
    scene *scene = user;
    pthread_mutex_lock(&scene->lock);
    CHECK(dispatch->id != 0 && scene->held < 64);
    scene->ids[scene->held] = dispatch->id;
    scene->lengths[scene->held++] = dispatch->bytes;
    scene->started++;
    pthread_cond_broadcast(&scene->changed);
    pthread_mutex_unlock(&scene->lock);
}

static uint64_t kept(scene *scene, uint64_t *bytes) {
    pthread_mutex_lock(&scene->lock);
    while (scene->held == 0)
        pthread_cond_wait(&scene->changed, &scene->lock);
    uint64_t id = scene->ids[0];
    *bytes = scene->lengths[0];
    scene->held--;
    memmove(scene->ids, scene->ids + 1, sizeof scene->ids - sizeof *scene->ids);
    memmove(scene->lengths, scene->lengths + 1, sizeof scene->lengths - sizeof *scene->lengths);
    pthread_mutex_unlock(&scene->lock);
    return id;
}

static uint64_t submit(scene *scene, uint32_t op, uint64_t offset, uint32_t bytes, uint32_t flags) {
    iogate_request request = request_for(scene, op, offset, bytes, NULL, note);
    request.flags = flags;
    uint64_t id = 0;
    CHECK(iogate_engine_submit(scene->engine, &request, &id) == 0 && id);
    return id;
}

static void starts(void) {
    scene *scene = scene_new();
    make(scene, (iogate_engine_config){.start = keep, .gate = {.queue_max = 3}}, "to-agg", 1);
    uint64_t first = submit(scene, IOGATE_READ, 0, 100, 0), bytes;
    uint64_t dispatch = kept(scene, &bytes);
    CHECK(bytes == 100 && iogate_engine_len(scene->engine) == 1);
    FAILS(iogate_engine_cancel(scene->engine, first), EBUSY, "in a dispatch");
    uint64_t second = submit(scene, IOGATE_READ, 200, 100, IOGATE_NONBLOCK);
    submit(scene, IOGATE_READ, 300, 100, 0);
    iogate_request request = request_of(7, IOGATE_READ, 0, 1);
    request.flags = IOGATE_NONBLOCK;
    FAILS(iogate_engine_submit(scene->engine, &request, NULL), EAGAIN, "full");
    CHECK(scene->over == 0 && scene->started == 1);
    FAILS(iogate_engine_complete(scene->engine, dispatch, 101, 0), EINVAL, "101 bytes");
    FAILS(iogate_engine_complete(scene->engine, dispatch, 0, -1), EINVAL, "-1");
    CHECK(iogate_engine_complete(scene->engine, dispatch, 50, 0) == 0);
    FAILS(iogate_engine_complete(scene->engine, dispatch, 50, 0), ESTALE, "has been completed");
    wait_over(scene, 1);
    CHECK(scene->last == 50);
    FAILS(iogate_engine_cancel(scene->engine, first), ESTALE, "over");
    /* Both at once; they fail together, and are repeated one by one. */
    dispatch = kept(scene, &bytes);
    CHECK(bytes == 200);
    CHECK(iogate_engine_complete(scene->engine, dispatch, 0, EIO) == 0);
    dispatch = kept(scene, &bytes);
    CHECK(bytes == 100 && scene->over == 1);
    CHECK(iogate_engine_complete(scene->engine, dispatch, 0, EIO) == 0);
    dispatch = kept(scene, &bytes);
    CHECK(bytes == 100 && iogate_engine_complete(scene->engine, dispatch, 100, 0) == 0);
    wait_over(scene, 3);
    FAILS(iogate_engine_cancel(scene->engine, second), ESTALE, "");
    CHECK(iogate_engine_free(scene->engine) == 0);
    scene_free(scene);
}

/* What is cancelled is not started, and what lies around it is, in pieces. */
static void cancels(void) {
    scene *scene = scene_new();
    make(scene, (iogate_engine_config){.start = keep}, "to-agg", 1);
    uint64_t bytes, ids[6];
    submit(scene, IOGATE_WRITE, 5000, 1, 0);
    uint64_t held = kept(scene, &bytes);
    for (int i = 0; i < 6; i++)
        ids[i] = submit(scene, IOGATE_WRITE, 100 * i, 100, 0);
    CHECK(iogate_engine_cancel(scene->engine, ids[0]) == 0);
    CHECK(iogate_engine_cancel(scene->engine, ids[3]) == 0);
    FAILS(iogate_engine_cancel(scene->engine, ids[3]), EALREADY, "");
    CHECK(iogate_engine_complete(scene->engine, held, 1, 0) == 0);
    held = kept(scene, &bytes);
    CHECK(bytes == 200 && scene->over == 1);
    FAILS(iogate_engine_cancel(scene->engine, ids[1]), EBUSY, "");
    CHECK(iogate_engine_complete(scene->engine, held, 200, 0) == 0);
    uint64_t before = held;
    held = kept(scene, &bytes);
    CHECK(bytes == 200 && scene->over == 1);
    FAILS(iogate_engine_complete(scene->engine, before, 200, 0), ESTALE, "");
    CHECK(iogate_engine_complete(scene->engine, held, 200, 0) == 0);
    wait_over(scene, 7);
    CHECK(iogate_engine_len(scene->engine) == 0 && scene->started == 3);
    CHECK(iogate_engine_free(scene->engine) == 0);
    scene_free(scene);
}

/* Each dispatch submits the next request, and completes itself in its own `start`. */
static void start_inside(void *user, const iogate_dispatch *dispatch) {
    scene *scene = user;
    int depth = atomic_fetch_add(&scene->inside, 1);
    CHECK(depth == 0); /* Handled one behind another, not nested. */
    int more = ++scene->started;
    if (more < 1000)
        submit(scene, IOGATE_READ, 4096 * (uint64_t)more, 4096, 0);
    uint64_t id = dispatch->id, bytes = dispatch->bytes;
    atomic_fetch_sub(&scene->inside, 1);
    CHECK(iogate_engine_complete(scene->engine, id, bytes, 0) == 0);
    FAILS(iogate_engine_complete(scene->engine, id, bytes, 0), ESTALE, "");
}

#define CUT 32000

/* Keeps the first dispatch, and completes each piece of the second in its own `start`. */
static void start_pieces(void *user, const iogate_dispatch *dispatch) {
    scene *scene = user;
    if (scene->started == 0) {
        keep(user, dispatch);
        return;
    }
    int depth = atomic_fetch_add(&scene->inside, 1);
    CHECK(depth == 0 && dispatch->part_count == 1);
    scene->started++;
    uint64_t id = dispatch->id;
    CHECK(iogate_engine_complete(scene->engine, id, 1, 0) == 0);
    FAILS(iogate_engine_complete(scene->engine, id, 1, 0), ESTALE, "");
    atomic_fetch_sub(&scene->inside, 1);
}

static void *complete_kept(void *of) {
    scene *scene = of;
    uint64_t bytes, id = kept(scene, &bytes);
    CHECK(iogate_engine_complete(scene->engine, id, bytes, 0) == 0);
    return NULL;
}

/* However many pieces a dispatch comes in, they do not nest: the stack is a small one. */
static void pieces_inside(void) {
    scene *scene = scene_new();
    make(scene, (iogate_engine_config){.start = start_pieces}, "to-agg:run_requests_max=65536", 1);
    submit(scene, IOGATE_READ, 2 * CUT, 1, 0);
    for (int i = 0; i < CUT; i++) {
        uint64_t id = submit(scene, IOGATE_READ, (uint64_t)i, 1, 0);
        if (i % 2)
            CHECK(iogate_engine_cancel(scene->engine, id) == 0);
    }
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 1 << 20) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, &attributes, complete_kept, scene) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    wait_over(scene, 1 + CUT);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(scene->started == 1 + CUT / 2);
    CHECK(iogate_engine_free(scene->engine) == 0);
    scene_free(scene);
}

static int64_t carry_out_inside(void *user, const iogate_dispatch *dispatch) {
    scene *scene = user;
    int depth = atomic_fetch_add(&scene->inside, 1);
    CHECK(depth == 0);
    int more = ++scene->started;
    if (more < 1000)
        submit(scene, IOGATE_READ, 4096 * (uint64_t)more, 4096, 0);
    if (more == 10) {
        /* No waiting in here, whoever could make room. */
        for (;;) {
            iogate_request request = request_of(7, IOGATE_READ, 0, 1);
            int error = iogate_engine_submit(scene->engine, &request, NULL);
            if (error) {
                CHECK(error == EAGAIN);
                break;
            }
            scene->held++;
        }
        CHECK(iogate_engine_switch(scene->engine, "sjf") == 0);
    }
    atomic_fetch_sub(&scene->inside, 1);
    return (int64_t)dispatch->bytes;
}

/* The last completion frees the engine. */
static void free_inside(void *user, int64_t result) {
    scene *scene = user;
    CHECK(result == 4096);
    CHECK(iogate_engine_free(scene->engine) == 0);
    note(user, result);
}

/* The completion cannot free the engine, for want of memory for a thread. */
static void cannot_free_inside(void *user, int64_t result) {
    scene *scene = user;
    struct rlimit before, none;
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    none = before;
    none.rlim_cur = 1 << 20;
    CHECK(setrlimit(RLIMIT_AS, &none) == 0);
    FAILS(iogate_engine_free(scene->engine), EAGAIN, "");
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    note(user, result);
}

static void no_thread(void) {
    scene *scene = scene_new();
    make(scene, (iogate_engine_config){.carry_out = carry_out}, "fifo", 1);
    char memory[4096];
    iogate_request request = request_for(scene, IOGATE_READ, 0, 4096, memory, cannot_free_inside);
    /* It is the caller's as before: what it does, it can do again. */
    for (int over = 1; over <= 2; over++) {
        CHECK(iogate_engine_submit(scene->engine, &request, NULL) == 0);
        wait_over(scene, over);
    }
    CHECK(iogate_engine_free(scene->engine) == 0);
    scene_free(scene);
}

/* Threads of this process. */
static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    int count = -2;
    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count;
}

static void inside(void) {
    scene *scene = scene_new();
    make(scene, (iogate_engine_config){.start = start_inside}, "fifo", 1);
    submit(scene, IOGATE_READ, 0, 4096, 0);
    wait_over(scene, 1000);
    CHECK(iogate_engine_free(scene->engine) == 0);
    scene_free(scene);

    pieces_inside();

    scene = scene_new();
    make(scene, (iogate_engine_config){.carry_out = carry_out_inside, .flags = IOGATE_QUICK, .gate = {.queue_max = 8}},
         "fifo", 1);
    submit(scene, IOGATE_READ, 0, 4096, 0);
    /* Each but the last ones has submitted one; those without `done` have, too. */
    wait_over(scene, 1000);
    CHECK(iogate_engine_free(scene->engine) == 0);
    CHECK(scene->held > 0 && scene->started >= 1000);
    scene_free(scene);

    scene = scene_new();
    make(scene, (iogate_engine_config){.carry_out = carry_out}, "fifo", 1);
    char memory[4096];
    iogate_request request = request_for(scene, IOGATE_READ, 0, 4096, memory, free_inside);
    CHECK(iogate_engine_submit(scene->engine, &request, NULL) == 0);
    wait_over(scene, 1);
    /* It is freed behind our back, by a thread that ends as the engine's do. */
    while (threads() > 1)
        usleep(1000);
    scene_free(scene);
}

/* What is started is completed after the engine has begun to go. */
static void *complete_late(void *of) {
    scene *scene = of;
    uint64_t bytes, id = kept(scene, &bytes);
    usleep(20000);
    CHECK(iogate_engine_complete(scene->engine, id, bytes, 0) == 0);
    return NULL;
}

/* Hands the second dispatch to another thread, and goes on with its pointer when that has been completed. */
static void start_lingering(void *user, const iogate_dispatch *dispatch) {
    scene *scene = user;
    int lingers = scene->started == 1;
    if (lingers)
        atomic_store(&scene->inside, 1);
    keep(user, dispatch);
    if (lingers) {
        usleep(50000);
        atomic_store(&scene->inside, 0);
    }
}

/* The engine outlives a `start` that returns after its dispatch is over. */
static void ends_in_start(void) {
    scene *scene = scene_new();
    make(scene, (iogate_engine_config){.start = start_lingering}, "fifo", 1);
    submit(scene, IOGATE_READ, 0, 4096, 0);
    submit(scene, IOGATE_READ, 4096, 4096, 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, complete_late, scene) == 0);
    wait_over(scene, 1);
    uint64_t bytes, id = kept(scene, &bytes);
    CHECK(iogate_engine_complete(scene->engine, id, bytes, 0) == 0);
    CHECK(iogate_engine_free(scene->engine) == 0);
    CHECK(scene->over == 2 && atomic_load(&scene->inside) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    scene_free(scene);
}

static void ends(void) {
    for (int i = 0; i < 20; i++) {
        scene *scene = scene_new();
        make(scene, (iogate_engine_config){.start = keep}, "aioli", 1);
        submit(scene, IOGATE_READ, 0, 4096, 0);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, complete_late, scene) == 0);
        CHECK(iogate_engine_free(scene->engine) == 0);
        CHECK(scene->over == 1);
        CHECK(pthread_join(thread, NULL) == 0);
        scene_free(scene);
    }
    ends_in_start();
}

static void errors(void) {
    iogate_engine *engine = (iogate_engine *)&engine;
    iogate_engine_config config = {.size = sizeof config, .gate = {.size = sizeof config.gate}};
    FAILS(iogate_engine_new(NULL, &engine), EINVAL, "`config` is a null pointer");
    CHECK(engine == NULL);
    FAILS(iogate_engine_new(&config, NULL), EINVAL, "`engine`");
    FAILS(iogate_engine_new(&config, &engine), EINVAL, "one of `carry_out` and `start`");
    config.carry_out = carry_out;
    config.start = keep;
    FAILS(iogate_engine_new(&config, &engine), EINVAL, "one of `carry_out` and `start`");
    config.start = NULL;
    config.flags = 2;
    FAILS(iogate_engine_new(&config, &engine), EINVAL, "flags are 0x2");
    config.flags = 0;
    config.gate.size = 0;
    FAILS(iogate_engine_new(&config, &engine), EINVAL, "`config.gate`: size is 0; expected its sizeof");
    /* It lies within the other one: what is behind it is not its own. */
    config.gate.size = sizeof config.gate + 8;
    FAILS(iogate_engine_new(&config, &engine), EINVAL, "expected its sizeof");
    config.gate.size = sizeof config.gate;
    config.gate.scheduler = "noop";
    FAILS(iogate_engine_new(&config, &engine), EINVAL, "unknown scheduler 'noop'");
    config.gate.scheduler = "auto";
    config.gate.queue_max = UINT32_MAX;
    FAILS(iogate_engine_new(&config, &engine), EINVAL, "queue_max is 4294967295");
    config.gate.queue_max = 0;
    scene *scene = scene_new();
    config.user = scene;
    CHECK(iogate_engine_new(&config, &engine) == 0);
    iogate_request request = request_of(7, IOGATE_READ, 0, 0);
    FAILS(iogate_engine_submit(engine, &request, NULL), EINVAL, "malformed");
    request.bytes = 1;
    request.flags = IOGATE_HAS_TARGET;
    FAILS(iogate_engine_submit(engine, &request, NULL), EINVAL, "flags");
    request.flags = 0;
    request.op = 9;
    FAILS(iogate_engine_submit(engine, &request, NULL), EINVAL, "op is 9");
    request.size--;
    FAILS(iogate_engine_submit(engine, &request, NULL), EINVAL, "expected its sizeof");
    FAILS(iogate_engine_submit(engine, NULL, NULL), EINVAL, "`request`");
    FAILS(iogate_engine_submit(NULL, &request, NULL), EINVAL, "`engine`");
    FAILS(iogate_engine_complete(NULL, 1, 0, 0), EINVAL, "`engine`");
    FAILS(iogate_engine_cancel(engine, 17), ESTALE, "");
    FAILS(iogate_engine_cancel(NULL, 17), EINVAL, "`engine`");
    FAILS(iogate_engine_switch(engine, NULL), EINVAL, "`scheduler`");
    FAILS(iogate_engine_switch(engine, "hbrr:quantum=-1"), EINVAL, "quantum");
    CHECK(iogate_engine_switch(engine, "auto") == 0);
    FAILS(iogate_engine_stats(NULL, NULL, 0, NULL), EINVAL, "`engine`");
    CHECK(iogate_engine_len(NULL) == 0 && iogate_engine_len(engine) == 0);
    CHECK(iogate_engine_free(NULL) == 0);
    CHECK(iogate_engine_free(engine) == 0);
    scene_free(scene);
}

static void forks(void) {
    scene *scene = scene_new();
    make(scene, (iogate_engine_config){.start = keep}, "fifo", 1);
    uint64_t id = submit(scene, IOGATE_READ, 0, 1, 0), bytes, held = kept(scene, &bytes);
    pid_t child = fork();
    if (child == 0) {
        iogate_request request = request_of(7, IOGATE_READ, 0, 1);
        FAILS(iogate_engine_submit(scene->engine, &request, NULL), ECHILD, "parent's");
        FAILS(iogate_engine_complete(scene->engine, held, 1, 0), ECHILD, "");
        FAILS(iogate_engine_cancel(scene->engine, id), ECHILD, "");
        FAILS(iogate_engine_switch(scene->engine, "fifo"), ECHILD, "");
        FAILS(iogate_engine_stats(scene->engine, NULL, 0, NULL), ECHILD, "");
        CHECK(iogate_engine_len(scene->engine) == 0);
        FAILS(iogate_engine_free(scene->engine), ECHILD, "");
        make(scene, (iogate_engine_config){.carry_out = carry_out}, "fifo", 1);
        CHECK(iogate_engine_free(scene->engine) == 0);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(iogate_engine_complete(scene->engine, held, 1, 0) == 0);
    CHECK(iogate_engine_free(scene->engine) == 0);
    CHECK(scene->over == 1);
    scene_free(scene);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    const char *mode = arguments[1];
    if (!strcmp(mode, "carries-out")) {
        carries_out("fifo", 0);
        carries_out("to-agg", IOGATE_QUICK);
        carries_out("aioli:contiguous_wait=1us,wait_max=1us", 0);
    } else if (!strcmp(mode, "order")) {
        keeps_order("sjf", IOGATE_QUICK);
        keeps_order("mlf:contiguous_wait=1us,wait_max=1us", 0);
    } else if (!strcmp(mode, "starts")) starts();
    else if (!strcmp(mode, "cancel")) cancels();
    else if (!strcmp(mode, "inside")) inside();
    else if (!strcmp(mode, "no-thread")) no_thread();
    else if (!strcmp(mode, "ends")) ends();
    else if (!strcmp(mode, "errors")) errors();
    else if (!strcmp(mode, "fork")) forks();
    else return 2;
    return 0;
}
