/* A gate by hand, as the header says: `by_hand MODE`. Exit status 0 if all is as it should be. */
#include "check.h"
#include <pthread.h>

static iogate_gate *gate_of(const char *scheduler, uint32_t depth) {
    iogate_gate_config config = {.size = sizeof config, .scheduler = scheduler, .depth = depth};
    iogate_gate *gate = NULL;
    CHECK(iogate_gate_new(&config, &gate) == 0);
    return gate;
}

static uint64_t submit(iogate_gate *gate, uint64_t now, uint32_t op, uint64_t offset, uint32_t bytes) {
    iogate_request request = request_of(7, op, offset, bytes);
    request.user = (void *)(uintptr_t)(offset + 1);
    request.memory = (void *)(uintptr_t)(0x1000 + offset);
    uint64_t id = 0;
    CHECK(iogate_gate_submit(gate, now, &request, &id) == 0);
    CHECK(id != 0);
    return id;
}

static iogate_decision next(iogate_gate *gate, uint64_t now) {
    iogate_decision decision = {.size = sizeof decision};
    CHECK(iogate_gate_next(gate, now, &decision) == 0);
    return decision;
}

/* Requests that lie one behind another leave together, in the caller's own time. */
static void protocol(void) {
    iogate_gate *gate = gate_of("to-agg:run_requests_max=16", 1);
    CHECK(next(gate, 0).kind == IOGATE_IDLE);
    uint64_t second = submit(gate, 1, IOGATE_READ, 4096, 4096);
    uint64_t first = submit(gate, 2, IOGATE_READ, 0, 4096);
    uint64_t after = submit(gate, 3, IOGATE_WRITE, 4096, 100);
    CHECK(iogate_gate_len(gate) == 3);
    iogate_decision decision = next(gate, 4);
    CHECK(decision.kind == IOGATE_DISPATCH && decision.reason == NULL);
    iogate_dispatch dispatch = decision.dispatch;
    CHECK(dispatch.id != 0 && dispatch.file == 7 && dispatch.op == IOGATE_READ);
    CHECK(dispatch.offset == 0 && dispatch.bytes == 8192 && dispatch.part_count == 2);
    CHECK(dispatch.parts[0].request == first && dispatch.parts[1].request == second);
    CHECK(dispatch.parts[1].offset == 4096 && dispatch.parts[1].bytes == 4096);
    CHECK(dispatch.parts[1].user == (void *)(uintptr_t)4097);
    CHECK(dispatch.parts[1].memory == (void *)(uintptr_t)(0x1000 + 4096));
    /* The write overlaps what is in service; and the depth is 1. */
    CHECK(next(gate, 5).kind == IOGATE_IDLE);
    FAILS(iogate_gate_complete(gate, 6, dispatch.id, 8193, 0), EINVAL, "8193 bytes of a dispatch of 8192");
    FAILS(iogate_gate_complete(gate, 6, dispatch.id, 0, -5), EINVAL, "-5");
    CHECK(iogate_gate_complete(gate, 6, dispatch.id, 8192, 0) == 0);
    FAILS(iogate_gate_complete(gate, 6, dispatch.id, 8192, 0), ESTALE, "has been completed");
    FAILS(iogate_gate_cancel(gate, first), ESTALE, "over");
    decision = next(gate, 7);
    CHECK(decision.kind == IOGATE_DISPATCH && decision.dispatch.parts[0].request == after);
    CHECK(decision.dispatch.id != dispatch.id);
    CHECK(iogate_gate_complete(gate, 8, decision.dispatch.id, 0, EIO) == 0);
    CHECK(next(gate, 9).kind == IOGATE_IDLE && iogate_gate_len(gate) == 0);
    char *json = STATS(gate, gate);
    CHECK(strstr(json, "\"scheduler\":\"to-agg\"") && strstr(json, "\"run_requests_max\":\"16\""));
    CHECK(strstr(json, "\"requests\":2"));
    free(json);
    CHECK(iogate_gate_free(gate) == 0);

    /* A scheduler that waits says until when, and why; another one does not. */
    gate = gate_of("twins:window=1ms,idle=wait", 1);
    uint64_t now = iogate_gate_now(gate);
    CHECK(now > 1000000000000000000u);
    FAILS(iogate_gate_switch(gate, IOGATE_NOW, "twins:windw=1ms"), EINVAL, "window");
    CHECK(iogate_gate_switch(gate, IOGATE_NOW, "aioli:contiguous_wait=1s") == 0);
    for (uint64_t at = 0; at < 3; at++) {
        submit(gate, IOGATE_NOW, IOGATE_READ, at * 4096, 4096);
        decision = next(gate, IOGATE_NOW);
        while (decision.kind == IOGATE_WAIT) {
            CHECK(decision.until_ns > now && decision.reason && *decision.reason);
            /* Where time is the caller's, the wait is over when he says so. */
            decision = next(gate, decision.until_ns);
        }
        CHECK(decision.kind == IOGATE_DISPATCH);
        CHECK(iogate_gate_complete(gate, IOGATE_NOW, decision.dispatch.id, 4096, 0) == 0);
    }
    submit(gate, IOGATE_NOW, IOGATE_READ, 0, 4096);
    CHECK(iogate_gate_drain(gate, IOGATE_NOW) == 0);
    iogate_request request = request_of(7, IOGATE_READ, 0, 1);
    FAILS(iogate_gate_submit(gate, IOGATE_NOW, &request, NULL), ESHUTDOWN, "closed");
    CHECK(next(gate, IOGATE_NOW).kind == IOGATE_DISPATCH);
    /* With a dispatch in service. */
    CHECK(iogate_gate_free(gate) == 0);
    CHECK(iogate_gate_free(NULL) == 0);
}

static void errors(void) {
    iogate_gate_config config = {.size = sizeof config};
    iogate_gate *gate = (iogate_gate *)&config;
    FAILS(iogate_gate_new(NULL, &gate), EINVAL, "`config` is a null pointer");
    CHECK(gate == NULL);
    FAILS(iogate_gate_new(&config, NULL), EINVAL, "`gate` is a null pointer");
    config.size = 0;
    FAILS(iogate_gate_new(&config, &gate), EINVAL, "size is 0");
    config.size = sizeof config - 8;
    FAILS(iogate_gate_new(&config, &gate), EINVAL, "sizeof");
    config.size = SIZE_MAX;
    FAILS(iogate_gate_new(&config, &gate), EINVAL, "sizeof");
    config.size = sizeof config;
    config.scheduler = "aoili";
    FAILS(iogate_gate_new(&config, &gate), EINVAL, "did you mean 'aioli'?");
    config.scheduler = "aioli:quantum_base";
    FAILS(iogate_gate_new(&config, &gate), EINVAL, "expected PARAMETER=VALUE");
    config.scheduler = "aioli:quantum_base=many";
    FAILS(iogate_gate_new(&config, &gate), EINVAL, "quantum_base");
    config.scheduler = "auto";
    FAILS(iogate_gate_new(&config, &gate), EINVAL, "engine");
    config.scheduler = "\xff\n";
    FAILS(iogate_gate_new(&config, &gate), EINVAL, "UTF-8");
    config.scheduler = "fifo\nlifo";
    FAILS(iogate_gate_new(&config, &gate), EINVAL, "fifo lifo");
    config.scheduler = NULL;
    config.targets = 2;
    FAILS(iogate_gate_new(&config, &gate), EINVAL, "stripe_bytes is 0");
    config.targets = 5000;
    config.stripe_bytes = 1;
    FAILS(iogate_gate_new(&config, &gate), EINVAL, "targets");
    /* Of a later version, with nothing in what this one does not know, and with something. */
    struct {
        iogate_gate_config config;
        uint64_t more;
    } later = {.config = {.size = sizeof later}};
    CHECK(iogate_gate_new(&later.config, &gate) == 0);
    CHECK(iogate_gate_free(gate) == 0);
    later.more = 1;
    FAILS(iogate_gate_new(&later.config, &gate), EINVAL, "later version");

    config = (iogate_gate_config){.size = sizeof config, .queue_max = 2, .run_bytes_max = 8192};
    config.scheduler = "to-agg";
    CHECK(iogate_gate_new(&config, &gate) == 0);
    char *json = STATS(gate, gate);
    CHECK(strstr(json, "\"run_bytes_max\":\"8KiB\""));
    free(json);
    iogate_request request = request_of(1, IOGATE_READ, 0, 1);
    uint64_t id;
    FAILS(iogate_gate_submit(NULL, 0, &request, &id), EINVAL, "`gate`");
    FAILS(iogate_gate_submit(gate, 0, NULL, &id), EINVAL, "`request`");
    FAILS(iogate_gate_submit(gate, IOGATE_NOW - 1, &request, &id), EINVAL, "now_ns");
    FAILS(iogate_gate_submit(gate, 0, (void *)((char *)&request + 1), &id), EINVAL, "not aligned");
    request.size = 8;
    FAILS(iogate_gate_submit(gate, 0, &request, &id), EINVAL, "size is 8");
    request = request_of(1, 2, 0, 1);
    FAILS(iogate_gate_submit(gate, 0, &request, &id), EINVAL, "op is 2");
    request = request_of(1, IOGATE_READ, 0, 0);
    FAILS(iogate_gate_submit(gate, 0, &request, &id), EINVAL, "malformed");
    request = request_of(1, IOGATE_READ, UINT64_MAX, 1);
    FAILS(iogate_gate_submit(gate, 0, &request, &id), EINVAL, "malformed");
    request = request_of(1, IOGATE_READ, 0, 1);
    request.flags = IOGATE_NONBLOCK;
    FAILS(iogate_gate_submit(gate, 0, &request, &id), EINVAL, "flags");
    request.flags = IOGATE_HAS_TARGET;
    request.target = 4096;
    FAILS(iogate_gate_submit(gate, 0, &request, &id), EINVAL, "target 4096");
    request.target = 3;
    request.issued_ns = UINT64_MAX;
    FAILS(iogate_gate_submit(gate, 0, &request, &id), EINVAL, "issued_ns");
    request.issued_ns = 1;
    request.done = (iogate_done)errors;
    FAILS(iogate_gate_submit(gate, 0, &request, &id), EINVAL, "`done`");
    request.done = NULL;
    CHECK(iogate_gate_submit(gate, 0, &request, NULL) == 0);
    CHECK(iogate_gate_submit(gate, 0, &request, &id) == 0);
    FAILS(iogate_gate_submit(gate, 0, &request, &id), EAGAIN, "holds 2");
    FAILS(iogate_gate_next(gate, 0, NULL), EINVAL, "`decision`");
    iogate_decision decision = {0};
    FAILS(iogate_gate_next(gate, 0, &decision), EINVAL, "size is 0");
    FAILS(iogate_gate_next(NULL, 0, &decision), EINVAL, "");
    FAILS(iogate_gate_complete(gate, 0, 0, 0, 0), ESTALE, "");
    FAILS(iogate_gate_complete(gate, 0, UINT64_MAX, 0, 0), ESTALE, "");
    FAILS(iogate_gate_cancel(gate, 0), ESTALE, "");
    FAILS(iogate_gate_cancel(NULL, 0), EINVAL, "");
    FAILS(iogate_gate_switch(gate, 0, NULL), EINVAL, "`scheduler` is a null pointer");
    FAILS(iogate_gate_drain(NULL, 0), EINVAL, "");
    FAILS(iogate_gate_stats(NULL, NULL, 0, NULL), EINVAL, "");
    FAILS(iogate_gate_stats(gate, NULL, 1 << 20, NULL), EINVAL, "`buffer`");
    char byte = 'x';
    FAILS(iogate_gate_stats(gate, &byte, 1, NULL), ERANGE, "the room is 1");
    CHECK(byte == 'x');
    CHECK(iogate_gate_len(NULL) == 0 && iogate_gate_now(NULL) == 0);
    CHECK(strcmp(iogate_gate_version(), "") != 0);
    CHECK(iogate_gate_free(gate) == 0);

    /* More stripes than the gate takes. */
    config = (iogate_gate_config){.size = sizeof config, .queue_max = 4, .targets = 2, .stripe_bytes = 10};
    config.scheduler = "twins:split=on,idle=skip";
    CHECK(iogate_gate_new(&config, &gate) == 0);
    request = request_of(1, IOGATE_READ, 0, 41);
    FAILS(iogate_gate_submit(gate, 0, &request, &id), E2BIG, "queue_max, 4");
    request.bytes = 25;
    request.memory = (void *)0x1000;
    CHECK(iogate_gate_submit(gate, 0, &request, &id) == 0);
    uint64_t bytes = 0;
    for (uint64_t now = 0; bytes < 25;) {
        decision.size = sizeof decision;
        CHECK(iogate_gate_next(gate, now, &decision) == 0);
        CHECK(decision.kind != IOGATE_IDLE);
        now = decision.kind == IOGATE_WAIT ? decision.until_ns : now;
        if (decision.kind == IOGATE_DISPATCH) {
            for (uint32_t i = 0; i < decision.dispatch.part_count; i++) {
                const iogate_part *part = &decision.dispatch.parts[i];
                CHECK(part->request == id && (uintptr_t)part->memory == 0x1000 + part->offset);
                bytes += part->bytes;
            }
            FAILS(iogate_gate_cancel(gate, id), EBUSY, "in a dispatch");
            CHECK(iogate_gate_complete(gate, now, decision.dispatch.id, decision.dispatch.bytes, 0) == 0);
        }
    }
    FAILS(iogate_gate_cancel(gate, id), ESTALE, "");
    CHECK(iogate_gate_free(gate) == 0);
}

/* What is cancelled is never handed out, and what lies around it is, in pieces. */
static void cancel(void) {
    iogate_gate *gate = gate_of("to-agg", 1);
    uint64_t ids[6];
    for (int i = 0; i < 6; i++)
        ids[i] = submit(gate, 0, IOGATE_WRITE, 100 * i, 100);
    CHECK(iogate_gate_cancel(gate, ids[0]) == 0);
    CHECK(iogate_gate_cancel(gate, ids[2]) == 0);
    FAILS(iogate_gate_cancel(gate, ids[2]), EALREADY, "");
    iogate_dispatch first = next(gate, 1).dispatch;
    CHECK(first.part_count == 1 && first.parts[0].request == ids[1] && first.offset == 100);
    /* One at a time. */
    CHECK(next(gate, 1).kind == IOGATE_IDLE);
    FAILS(iogate_gate_cancel(gate, ids[1]), EBUSY, "in a dispatch");
    CHECK(iogate_gate_cancel(gate, ids[4]) == 0);
    CHECK(iogate_gate_complete(gate, 2, first.id, 100, 0) == 0);
    FAILS(iogate_gate_complete(gate, 2, first.id, 100, 0), ESTALE, "");
    iogate_dispatch second = next(gate, 3).dispatch;
    CHECK(second.part_count == 1 && second.parts[0].request == ids[3] && second.bytes == 100);
    CHECK(iogate_gate_complete(gate, 3, second.id, 0, EIO) == 0);
    /* Behind the last piece. */
    CHECK(iogate_gate_cancel(gate, ids[5]) == 0);
    uint64_t after = submit(gate, 3, IOGATE_READ, 0, 600);
    iogate_dispatch last = next(gate, 4).dispatch;
    CHECK(last.part_count == 1 && last.parts[0].request == after);
    CHECK(iogate_gate_complete(gate, 5, last.id, 600, 0) == 0);
    CHECK(iogate_gate_len(gate) == 0);
    /* All of a dispatch. */
    CHECK(iogate_gate_cancel(gate, submit(gate, 6, IOGATE_READ, 0, 1)) == 0);
    CHECK(next(gate, 6).kind == IOGATE_IDLE && iogate_gate_len(gate) == 0);
    CHECK(iogate_gate_free(gate) == 0);
}

static void forks(void) {
    iogate_gate *gate = gate_of(NULL, 1);
    uint64_t id = submit(gate, 0, IOGATE_READ, 0, 1);
    pid_t child = fork();
    if (child == 0) {
        iogate_request request = request_of(1, IOGATE_READ, 0, 1);
        iogate_decision decision = {.size = sizeof decision};
        FAILS(iogate_gate_submit(gate, 0, &request, NULL), ECHILD, "parent's");
        FAILS(iogate_gate_next(gate, 0, &decision), ECHILD, "");
        FAILS(iogate_gate_cancel(gate, id), ECHILD, "");
        FAILS(iogate_gate_complete(gate, 0, 1, 0, 0), ECHILD, "");
        FAILS(iogate_gate_switch(gate, 0, "fifo"), ECHILD, "");
        FAILS(iogate_gate_drain(gate, 0), ECHILD, "");
        FAILS(iogate_gate_stats(gate, NULL, 0, NULL), ECHILD, "");
        CHECK(iogate_gate_len(gate) == 0);
        FAILS(iogate_gate_free(gate), ECHILD, "");
        /* One of its own works. */
        iogate_gate *own = gate_of(NULL, 1);
        submit(own, 0, IOGATE_READ, 0, 1);
        CHECK(next(own, 0).kind == IOGATE_DISPATCH);
        CHECK(iogate_gate_free(own) == 0);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(iogate_gate_cancel(gate, id) == 0);
    CHECK(iogate_gate_free(gate) == 0);
}

#define TIMES 500
static void *worker(void *of) {
    iogate_gate *gate = of;
    for (int i = 0; i < TIMES; i++) {
        submit(gate, IOGATE_NOW, i % 2 ? IOGATE_READ : IOGATE_WRITE, 4096 * (i % 7), 4096);
        for (;;) {
            iogate_decision decision = next(gate, IOGATE_NOW);
            if (decision.kind != IOGATE_DISPATCH)
                break;
            CHECK(decision.dispatch.parts[0].bytes == 4096);
            CHECK(iogate_gate_complete(gate, IOGATE_NOW, decision.dispatch.id, decision.dispatch.bytes, 0) == 0);
        }
    }
    return NULL;
}

/* From several threads, which find each other's dispatches. */
static void threads(void) {
    iogate_gate *gate = gate_of("sjf", 4);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, worker, gate) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(next(gate, IOGATE_NOW).kind == IOGATE_IDLE && iogate_gate_len(gate) == 0);
    CHECK(iogate_gate_free(gate) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    const char *mode = arguments[1];
    if (!strcmp(mode, "protocol")) protocol();
    else if (!strcmp(mode, "errors")) errors();
    else if (!strcmp(mode, "cancel")) cancel();
    else if (!strcmp(mode, "fork")) forks();
    else if (!strcmp(mode, "threads")) threads();
    else return 2;
    return 0;
}
