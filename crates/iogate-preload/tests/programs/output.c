/* Writes files in one of many ways; those called *.ckpt are bulk output. The test counts the turns that this takes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                            \
    do {                                                                                            \
        if (!(condition)) {                                                                         \
            fprintf(stderr, "line %d: not %s: %s\n", __LINE__, #condition, strerror(errno));        \
            _exit(1);                                                                               \
        }                                                                                           \
    } while (0)

enum { PIECE = 1000 };

static char piece[PIECE];

static int make(const char *name) {
    int fd = open(name, O_CREAT | O_TRUNC | O_RDWR, 0644);
    CHECK(fd >= 0);
    return fd;
}

static void put(int fd) { CHECK(write(fd, piece, PIECE) == PIECE); }

static void plain(void) {
    int fd = make("a.ckpt");
    put(fd);
    CHECK(pwrite(fd, piece, PIECE, 5000) == PIECE);
    struct iovec parts[2] = {{piece, PIECE}, {piece, PIECE}};
    CHECK(writev(fd, parts, 2) == 2 * PIECE && pwritev(fd, parts, 2, 9000) == 2 * PIECE);
    CHECK(pwritev2(fd, parts, 1, -1, 0) == PIECE);
    errno = 77;
    put(fd);
    CHECK(errno == 77);
    CHECK(close(fd) == 0);
}

static void fails(void) {
    int fd = make("a.ckpt");
    errno = 0;
    CHECK(write(fd, NULL, PIECE) == -1 && errno == EFAULT);
    CHECK(close(fd) == 0 && close(fd) == -1 && errno == EBADF);
}

static void stdio(void) {
    FILE *file = fopen("a.ckpt", "w");
    CHECK(file != NULL && fileno(file) > 2);
    for (int line = 0; line < 2000; line++)
        CHECK(fprintf(file, "%04d\n", line) == 5);
    CHECK(ftell(file) == 10000 && fseek(file, 0, SEEK_SET) == 0 && fputs("9999", file) >= 0);
    CHECK(fclose(file) == 0);
    CHECK((file = fdopen(make("b.ckpt"), "w")) != NULL && fwrite(piece, 1, PIECE, file) == PIECE);
    CHECK(fflush(file) == 0 && fclose(file) == 0);
    CHECK((file = fopen("other", "w+")) != NULL && fputs("text\n", file) >= 0 && fclose(file) == 0);
    CHECK((file = fopen("a.ckpt", "r")) != NULL && fgetc(file) == '9' && fclose(file) == 0);
    CHECK((file = freopen("c.ckpt", "w", stdout)) != NULL);
    CHECK(printf("to standard output\n") == 19 && fclose(stdout) == 0);
}

/* One write that takes a while. */
static void large(void) {
    size_t bytes = 64 << 20;
    char *memory = calloc(bytes, 1);
    int fd = make("large.ckpt");
    CHECK(write(fd, memory, bytes) == bytes && close(fd) == 0);
}

static void two(void) {
    int a = make("a.ckpt"), b = make("b.ckpt");
    put(a), put(b);
    CHECK(close(a) == 0);
    put(b);
    CHECK(close(b) == 0);
}

static void sync_(void) {
    int fd = make("a.ckpt");
    put(fd);
    CHECK(fsync(fd) == 0);
    put(fd);
    CHECK(fdatasync(fd) == 0 && close(fd) == 0);
}

static void dups(void) {
    int fd = make("a.ckpt"), low = dup(fd), high = fcntl(fd, F_DUPFD, 100), other = make("other");
    CHECK(low > 0 && high >= 100);
    put(fd);
    CHECK(close(fd) == 0);
    put(low);
    CHECK(dup2(other, low) == low);
    put(low), put(high);
    CHECK(dup3(high, 200, O_CLOEXEC) == 200 && close_range(50, 150, 0) == 0);
    put(200);
    CHECK(close(200) == 0);
    put(low), put(other);
}

static void forks(void) {
    int a = make("a.ckpt"), status;
    put(a);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        put(a);
        CHECK(close(a) == 0);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    put(a);
    CHECK(close(a) == 0);
}

static pthread_barrier_t barrier;

static void *thread(void *name) {
    int fd = make(name);
    pthread_barrier_wait(&barrier);
    for (int turn = 0; turn < 50; turn++)
        put(fd);
    pthread_barrier_wait(&barrier);
    CHECK(close(fd) == 0);
    return NULL;
}

static void threads(void) {
    char names[4][8] = {"0.ckpt", "1.ckpt", "2.ckpt", "3.ckpt"};
    pthread_t ids[4];
    pthread_barrier_init(&barrier, NULL, 4);
    for (int each = 0; each < 4; each++)
        CHECK(pthread_create(&ids[each], NULL, thread, names[each]) == 0);
    for (int each = 0; each < 4; each++)
        pthread_join(ids[each], NULL);
}

/* Is stopped until its turn is over: the test ends it by a file. */
static void idle(void) {
    int fd = make("a.ckpt");
    put(fd);
    while (access("go", F_OK) != 0)
        usleep(1000);
    put(fd);
    CHECK(close(fd) == 0);
}

static void exits(void) { put(make("a.ckpt")); }

static void exits_at_once(void) {
    put(make("a.ckpt"));
    _exit(0);
}

static void execs(void) {
    put(make("a.ckpt"));
    execvp("true", (char *[]){"true", NULL});
}

static void others(void) {
    int fd = make("other");
    put(fd);
    CHECK(close(fd) == 0 && close(make("a.ckpt")) == 0);
    CHECK((fd = open("a.ckpt", O_RDONLY)) >= 0 && write(fd, piece, 1) == -1 && errno == EBADF);
    CHECK(mkfifo("pipe.ckpt", 0600) == 0 && (fd = open("pipe.ckpt", O_RDWR)) >= 0);
    put(fd);
}

/* The number of a descriptor that was closed past the library belongs to a socket. */
static void stale(void) {
    int fd = make("a.ckpt"), ends[2];
    CHECK(syscall(SYS_close, fd) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && ends[0] == fd);
    put(fd);
}

static void copies(void) {
    int from = make("other"), to = make("a.ckpt");
    put(from);
    off_t at = 0, zero = 0;
    CHECK(sendfile(to, from, &at, PIECE) == PIECE);
    at = 0, zero = PIECE;
    CHECK(copy_file_range(from, &at, to, &zero, PIECE, 0) == PIECE);
    CHECK(close(to) == 0);
}

static void names(void) {
    char template[] = "b-XXXXXX.ckpt";
    int fd = mkstemps(template, 5);
    CHECK(fd >= 0);
    put(fd);
    CHECK(close(fd) == 0 && (fd = creat("c.ckpt", 0600)) >= 0);
    put(fd);
    CHECK(close(fd) == 0 && (fd = openat(AT_FDCWD, "c.ckpt", O_WRONLY | O_APPEND)) >= 0);
    put(fd);
    CHECK(close(fd) == 0);
}

/* In each of its turns it is the only one. */
static void alone(void) {
    for (int round = 0; round < 5; round++) {
        char name[32];
        snprintf(name, sizeof name, "%d-%d.ckpt", getpid(), round);
        int fd = make(name), mine;
        put(fd);
        CHECK((mine = open("mine", O_CREAT | O_EXCL | O_WRONLY, 0600)) >= 0);
        usleep(5000);
        CHECK(unlink("mine") == 0 && close(mine) == 0 && close(fd) == 0);
    }
}

/* In its turn it waits for another that is in one, too. */
static void together(void) {
    char name[32];
    snprintf(name, sizeof name, "%d.ckpt", getpid());
    int fd = make(name), mine = open("first", O_CREAT | O_EXCL | O_WRONLY, 0600), tries = 0;
    const char *theirs = mine < 0 ? "first.in" : "second.in";
    put(fd);
    close(open(mine < 0 ? "second.in" : "first.in", O_CREAT | O_WRONLY, 0600));
    while (access(theirs, F_OK) != 0) {
        CHECK(++tries < 20000);
        usleep(1000);
    }
    CHECK(close(fd) == 0);
}

/* Says how the first write goes. */
static void refused(void) {
    int fd = make("a.ckpt");
    printf("%s\n", write(fd, piece, PIECE) < 0 ? strerrorname_np(errno) : "written");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } ways[] = {
        {"plain", plain},   {"fails", fails}, {"stdio", stdio},   {"two", two},         {"sync", sync_},
        {"large", large},
        {"dups", dups},     {"forks", forks}, {"threads", threads}, {"idle", idle},     {"exits", exits},
        {"_exits", exits_at_once}, {"execs", execs}, {"others", others}, {"stale", stale}, {"copies", copies},
        {"names", names},   {"alone", alone}, {"together", together}, {"refused", refused},
    };
    for (size_t each = 0; each < sizeof ways / sizeof *ways; each++)
        if (argc == 2 && strcmp(ways[each].name, argv[1]) == 0) {
            ways[each].run();
            return 0;
        }
    fprintf(stderr, "expected the name of a way\n");
    return 2;
}
