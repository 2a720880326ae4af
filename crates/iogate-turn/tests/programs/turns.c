/* Uses the C functions as their header says: `turns MODE ...`. Exit status 0 if all is as it should be. */
#include <errno.h>
#include <fcntl.h>
#include <iogate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: not so: %s (errno %d, %s)\n", __LINE__, #what, errno,        \
                    iogate_error());                                                               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Notes in a file that the process is in its turn, and that it is out. */
static void note(int fd, char sign) {
    char line[32];
    int bytes = snprintf(line, sizeof line, "%c%d\n", sign, (int)getpid());
    CHECK(write(fd, line, bytes) == bytes);
}

static void hold(int times, const char *path) {
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    CHECK(fd >= 0);
    iogate_wish wish = {.size = sizeof wish, .bytes = 4096};
    for (int i = 0; i < times; i++) {
        iogate_turn *turn;
        CHECK(iogate_acquire("scratch", &wish, &turn) == 0);
        CHECK(iogate_is_valid(turn) == 1);
        note(fd, '+');
        note(fd, '-');
        CHECK(iogate_release(turn) == 0);
    }
}

static void errors(void) {
    iogate_turn *turn, *other = NULL;
    CHECK(iogate_error()[0] == 0);
    errno = 0;
    CHECK(iogate_acquire(NULL, NULL, &turn) == -1 && errno == EINVAL && turn == NULL);
    CHECK(strlen(iogate_error()) > 0);
    CHECK(iogate_acquire("scratch", NULL, NULL) == -1 && errno == EINVAL);
    CHECK(iogate_acquire("", NULL, &turn) == -1 && errno == EINVAL);
    uint32_t wrong[] = {2, 1}, right[] = {1, 2};
    iogate_wish wish = {.size = sizeof wish, .targets = wrong, .target_count = 2};
    CHECK(iogate_acquire("scratch", &wish, &turn) == -1 && errno == EINVAL);
    wish.targets = NULL;
    CHECK(iogate_acquire("scratch", &wish, &turn) == -1 && errno == EINVAL);
    wish.targets = right;
    CHECK(iogate_acquire("scratch", &wish, &turn) == 0);
    CHECK(iogate_error()[0] == 0);
    uint64_t token = iogate_token(turn);
    CHECK(token > 0 && iogate_is_valid(turn) == 1);
    /* Alone, and one of the targets is its own already. */
    CHECK(iogate_acquire("scratch", NULL, &other) == -1 && errno == EDEADLK && other == NULL);
    CHECK(iogate_acquire("elsewhere", NULL, &other) == 0 && iogate_token(other) > token);
    CHECK(iogate_release(other) == 0 && iogate_release(turn) == 0);
    CHECK(iogate_release(NULL) == 0 && iogate_token(NULL) == 0 && iogate_is_valid(NULL) == 0);
    /* A wish of a later version, and one of none. */
    struct {
        iogate_wish wish;
        uint64_t more;
    } later = {.wish = {.size = sizeof later}};
    CHECK(iogate_acquire("scratch", &later.wish, &turn) == 0 && iogate_release(turn) == 0);
    later.more = 1;
    CHECK(iogate_acquire("scratch", &later.wish, &turn) == -1 && errno == EINVAL);
    iogate_wish none = {0};
    CHECK(iogate_acquire("scratch", &none, &turn) == 0 && iogate_release(turn) == 0);
    CHECK(iogate_probe(NULL) == -1 && errno == EINVAL);
}

/* Somebody else has it. */
static void in_vain(void) {
    iogate_turn *turn;
    iogate_wish wish = {.size = sizeof wish, .timeout_ns = 50 * 1000 * 1000};
    CHECK(iogate_acquire("scratch", &wish, &turn) == -1 && errno == ETIMEDOUT && turn == NULL);
}

static void unreachable(void) {
    iogate_turn *turn;
    CHECK(iogate_acquire("scratch", NULL, &turn) == -1 && errno == EHOSTUNREACH);
    CHECK(strstr(iogate_error(), "no coordinator") != NULL);
}

static void probe(const char *directory, const char *attempts) {
    CHECK(iogate_probe(directory) == atoi(attempts));
}

static void wait_for_one(void) {
    iogate_turn *turn;
    CHECK(iogate_acquire("scratch", NULL, &turn) == 0);
    printf("%llu\n", (unsigned long long)iogate_token(turn));
    CHECK(iogate_release(turn) == 0);
}

/* Ends with a turn. */
static void leave(void) {
    iogate_turn *turn;
    CHECK(iogate_acquire("scratch", NULL, &turn) == 0);
}

static void forks(void) {
    iogate_turn *turn, *own;
    CHECK(iogate_acquire("scratch", NULL, &turn) == 0);
    uint64_t token = iogate_token(turn);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* The parent's turn stays the parent's. */
        CHECK(iogate_release(turn) == 0);
        iogate_wish wish = {.size = sizeof wish, .timeout_ns = 50 * 1000 * 1000};
        CHECK(iogate_acquire("scratch", &wish, &own) == -1 && errno == ETIMEDOUT);
        CHECK(iogate_acquire("elsewhere", NULL, &own) == 0 && iogate_token(own) > token);
        CHECK(iogate_release(own) == 0);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(iogate_is_valid(turn) == 1);
    CHECK(iogate_release(turn) == 0);
    CHECK(iogate_acquire("scratch", NULL, &turn) == 0 && iogate_release(turn) == 0);
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    if (strcmp(mode, "hold") == 0)
        hold(atoi(arguments[2]), arguments[3]);
    else if (strcmp(mode, "errors") == 0)
        errors();
    else if (strcmp(mode, "in-vain") == 0)
        in_vain();
    else if (strcmp(mode, "unreachable") == 0)
        unreachable();
    else if (strcmp(mode, "probe") == 0)
        probe(arguments[2], arguments[3]);
    else if (strcmp(mode, "wait") == 0)
        wait_for_one();
    else if (strcmp(mode, "leave") == 0)
        leave();
    else if (strcmp(mode, "fork") == 0)
        forks();
    else
        return 2;
    return 0;
}
