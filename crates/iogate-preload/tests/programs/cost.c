/* Nanoseconds of calls on descriptors and paths of the kernel's, the best of several rounds: as many as the argument says. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 20000 };
static int rounds = 100;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

#define MEASURE(name, call)                                   \
    do {                                                      \
        double best = 1e18;                                   \
        for (int round = 0; round < rounds; round++) {        \
            double start = now();                             \
            for (int turn = 0; turn < CALLS; turn++)          \
                (void)!(call);                                \
            double each = (now() - start) / CALLS;            \
            best = each < best ? each : best;                 \
        }                                                     \
        printf("%s %.1f\n", name, best);                      \
    } while (0)

int main(int count, char **arguments) {
    if (count > 1)
        rounds = atoi(arguments[1]);
    char memory[8];
    struct stat stat_;
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    MEASURE("read", read(zero, memory, 1));
    MEASURE("write", write(null, memory, 1));
    MEASURE("lseek", lseek(zero, 0, SEEK_CUR));
    MEASURE("fcntl", fcntl(zero, F_GETFD));
    MEASURE("fstat", fstat(zero, &stat_));
    MEASURE("stat", stat("/etc/passwd", &stat_));
    MEASURE("open+close", close(open("/dev/null", O_RDONLY)));
    close(open("file", O_CREAT | O_WRONLY, 0600));
    MEASURE("open-w+close", close(open("file", O_WRONLY)));
    return 0;
}
