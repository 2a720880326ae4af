// Random reads, writes, truncations, mappings and syncs of one file, each compared with a copy in memory, as the program fsx does.
//
//   fsx FILE STEPS SEED
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 400000 };
static char good[MOST], buffer[MOST];
static long size, step;

static void die(const char *what, long at) {
    fprintf(stderr, "fsx: step %ld: %s at %ld: %s\n", step, what, at, strerror(errno));
    exit(1);
}

static void wrong(const char *what, long at) {
    fprintf(stderr, "fsx: step %ld: %s at %ld: not what was written\n", step, what, at);
    exit(1);
}

// A call whose result is what it must be, or the end of this. Bytes that are missing are no error by themselves: `errno` has none of it.
static void expect(const char *what, long at, long want, long got) {
    if (got == want)
        return;
    if (got < 0)
        die(what, at);
    fprintf(stderr, "fsx: step %ld: %s at %ld: %ld of %ld bytes\n", step, what, at, got, want);
    exit(1);
}

static void fill(char *bytes, long count) {
    for (long i = 0; i < count; i++)
        bytes[i] = (char)random();
}

static void map(int fd, long at, long bytes) {
    long page = at & ~4095L;
    char *mapped = mmap(NULL, (size_t)(bytes + at - page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, page);
    if (mapped == MAP_FAILED)
        die("map", at);
    if (memcmp(mapped + at - page, good + at, (size_t)bytes))
        wrong("mapped data", at);
    fill(good + at, bytes);
    memcpy(mapped + at - page, good + at, (size_t)bytes);
    munmap(mapped, (size_t)(bytes + at - page));
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    long steps = atol(argv[2]);
    srandom((unsigned)atol(argv[3]));
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        die("open", 0);
    for (step = 1; step <= steps; step++) {
        if (step % 50000 == 0) {
            printf("at step %ld\n", step);
            fflush(stdout);
        }
        long at = random() % MOST, bytes = random() % 70000 + 1;
        if (at + bytes > MOST)
            bytes = MOST - at;
        switch (random() % 10) {
        case 0:
        case 1:
        case 2:
            fill(good + at, bytes);
            // What lay between the end and this is zeros.
            expect("write", at, bytes, pwrite(fd, good + at, (size_t)bytes, at));
            if (at + bytes > size)
                size = at + bytes;
            break;
        case 3:
        case 4:
        case 5: {
            long want = at >= size ? 0 : at + bytes > size ? size - at : bytes;
            expect("read", at, want, pread(fd, buffer, (size_t)bytes, at));
            if (memcmp(buffer, good + at, (size_t)want))
                wrong("data of a read", at);
            break;
        }
        case 6:
            if (ftruncate(fd, at))
                die("truncate", at);
            if (at < size)
                memset(good + at, 0, (size_t)(size - at));
            size = at;
            break;
        case 7:
            if (at + bytes > size) {
                at = 0;
                bytes = size;
            }
            if (bytes > 0)
                map(fd, at, bytes);
            break;
        case 8:
            if (fsync(fd))
                die("sync", 0);
            break;
        default: {
            struct stat found;
            if (close(fd))
                die("close", 0);
            fd = open(argv[1], O_RDWR);
            if (fd < 0 || fstat(fd, &found))
                die("open", 0);
            expect("size after an open", 0, size, found.st_size);
        }
        }
    }
    printf("%ld steps are right\n", steps);
    return 0;
}
