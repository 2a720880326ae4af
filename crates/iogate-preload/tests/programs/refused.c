/* What the library refuses: the error is printed. The only argument is a directory under the prefix. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Past the C library. */
static long raw_write(int fd, const void *memory, unsigned long bytes) {
    long result = 1; /* SYS_write */
#if defined(__x86_64__)
    __asm__ volatile("syscall" : "+a"(result) : "D"(fd), "S"(memory), "d"(bytes) : "rcx", "r11", "memory");
#else
    result = -EBADF;
#endif
    return result;
}

static void lock_whole(int fd) {
    printf("lock %s\n", flock(fd, LOCK_EX | LOCK_NB) ? strerrorname_np(errno) : "held");
    fflush(stdout);
}

int main(int count, char **arguments) {
    char path[4096];
    if (count == 3) {
        lock_whole(atoi(arguments[2]));
        return 0;
    }
    snprintf(path, sizeof path, "%s/refused", arguments[1]);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    ftruncate(fd, 4096);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    printf("shared %s\n", map == MAP_FAILED ? strerrorname_np(errno) : "mapped");
    long result = raw_write(fd, "x", 1);
    printf("system call %s\n", result < 0 ? strerrorname_np(-result) : "written");
    struct epoll_event event = {EPOLLIN};
    printf("watch %s\n", epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, fd, &event) ? strerrorname_np(errno) : "watched");
    struct flock lock = {.l_type = F_WRLCK};
    printf("OFD lock %s\n", fcntl(fd, F_OFD_SETLK, &lock) ? strerrorname_np(errno) : "held");
    /* An open file that a program is given without the library, before it has been locked and after. */
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    fflush(stdout);
    for (int locked = 0; locked < 2; locked++) {
        pid_t child;
        posix_spawn(&child, arguments[0], NULL, NULL, (char *[]){arguments[0], arguments[1], number, NULL}, environ);
        waitpid(child, NULL, 0);
        if (!locked)
            lock_whole(fd);
    }
    return 0;
}
