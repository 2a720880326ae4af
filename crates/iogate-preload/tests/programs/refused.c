/* What the library refuses: the error is printed. The only argument is a directory under the prefix. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
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

int main(int count, char **arguments) {
    char path[4096];
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
    return 0;
}
