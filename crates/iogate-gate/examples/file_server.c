/* A file server whose reads and writes pass a gate: file_server DIRECTORY SOCKET [SCHEDULER]
 *
 * A client sends a `struct call`, and of a write the bytes; it gets a 64-bit result (bytes, or an errno number below zero), and of a
 * read the bytes. One thread for each connection waits for its request; some thread carries it out, together with those of other
 * connections that lie beside it. SIGTERM ends the server, with statistics on standard output. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <iogate_gate.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define FILES 32
#define BYTES_MAX (1 << 20)
#define RUN_MAX 64 /* Requests of a dispatch. */

struct call {
    uint32_t op; /* IOGATE_READ or IOGATE_WRITE. */
    uint32_t file;
    uint64_t offset;
    uint32_t bytes;
    uint32_t app;
};

static int files[FILES];
static iogate_engine *engine;

/* One dispatch, one call of the system. */
static int64_t carry_out(void *user, const iogate_dispatch *dispatch) {
    (void)user;
    struct iovec pieces[RUN_MAX];
    for (uint32_t i = 0; i < dispatch->part_count; i++)
        pieces[i] = (struct iovec){dispatch->parts[i].memory, dispatch->parts[i].bytes};
    int fd = files[dispatch->file], count = (int)dispatch->part_count;
    ssize_t done = dispatch->op == IOGATE_WRITE ? pwritev(fd, pieces, count, (off_t)dispatch->offset)
                                                : preadv(fd, pieces, count, (off_t)dispatch->offset);
    return done < 0 ? -errno : done;
}

/* What a connection waits for. */
struct answer {
    sem_t ready;
    int64_t result;
};

static void done(void *user, int64_t result) {
    struct answer *answer = user;
    answer->result = result;
    sem_post(&answer->ready);
}

static int receive(int socket, void *memory, size_t bytes) {
    return recv(socket, memory, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static int transmit(int socket, const void *memory, size_t bytes) {
    for (ssize_t sent; bytes > 0; bytes -= (size_t)sent, memory = (const char *)memory + sent)
        if ((sent = send(socket, memory, bytes, MSG_NOSIGNAL)) <= 0)
            return 0;
    return 1;
}

static void *serve(void *of) {
    int socket = (int)(intptr_t)of;
    struct answer answer;
    sem_init(&answer.ready, 0, 0);
    char *memory = malloc(BYTES_MAX);
    struct call call;
    while (memory && receive(socket, &call, sizeof call)) {
        if (call.bytes > BYTES_MAX || (call.op == IOGATE_WRITE && !receive(socket, memory, call.bytes)))
            break;
        iogate_request request = {
            .size = sizeof request, .file = call.file, .op = call.op, .offset = call.offset,
            .bytes = call.bytes, .app = call.app, .user = &answer, .memory = memory, .done = done};
        int error = call.file < FILES ? iogate_engine_submit(engine, &request, NULL) : ENOENT;
        if (error)
            answer.result = -error;
        while (error == 0 && sem_wait(&answer.ready) != 0)
            ; /* A signal. */
        if (!transmit(socket, &answer.result, sizeof answer.result))
            break;
        if (call.op == IOGATE_READ && answer.result > 0 && !transmit(socket, memory, (size_t)answer.result))
            break;
    }
    free(memory);
    sem_destroy(&answer.ready);
    close(socket);
    return NULL;
}

static void *accept_all(void *of) {
    for (;;) {
        int socket = accept((int)(intptr_t)of, NULL, NULL);
        pthread_t thread;
        if (socket >= 0 && pthread_create(&thread, NULL, serve, (void *)(intptr_t)socket) == 0)
            pthread_detach(thread);
        else if (socket >= 0)
            close(socket);
    }
    return NULL;
}

static void fail(const char *what) {
    fprintf(stderr, "file_server: %s: %s\n", what, strerror(errno));
    exit(1);
}

int main(int count, char **arguments) {
    if (count < 3 || count > 4)
        return fprintf(stderr, "expected DIRECTORY SOCKET [SCHEDULER]\n"), 2;
    for (int i = 0; i < FILES; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d", arguments[1], i);
        if ((files[i] = open(path, O_RDWR | O_CREAT, 0600)) < 0)
            fail(path);
    }
    iogate_engine_config config = {.size = sizeof config, .carry_out = carry_out};
    config.gate = (iogate_gate_config){.size = sizeof config.gate, .depth = 4, .run_requests_max = RUN_MAX};
    config.gate.scheduler = count == 4 ? arguments[3] : "to-agg";
    if (iogate_engine_new(&config, &engine) != 0)
        return fprintf(stderr, "file_server: %s\n", iogate_gate_error()), 1;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", arguments[2]);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64))
        fail(arguments[2]);
    pthread_t acceptor;
    if (pthread_create(&acceptor, NULL, accept_all, (void *)(intptr_t)listener))
        fail("no thread");
    int signal;
    sigwait(&ends, &signal);
    char json[1 << 16];
    if (iogate_engine_stats(engine, json, sizeof json, NULL) == 0)
        puts(json);
    return 0; /* Connections may still use the engine: it goes with the process. */
}
