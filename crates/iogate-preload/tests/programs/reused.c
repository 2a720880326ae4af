/* Numbers of descriptors that are closed past the C library's `close` and given out again: what is written to them must go where they lead
 * now. The only argument is a directory, which is empty; what it prints is the same in any. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char precious[4096], plain[] = "/tmp/iogate-reused-XXXXXX";

static void check(const char *what, int is_true) { printf("%s: %s\n", what, is_true ? "yes" : "no"); }

static void show(const char *when) {
    char memory[64] = {0};
    int fd = open(precious, O_RDONLY);
    ssize_t bytes = read(fd, memory, sizeof memory - 1);
    printf("%s: precious has %zd bytes [%s]\n", when, bytes, memory);
    close(fd);
}

/* A number that was of the file, and is free without the library's knowledge. */
static int stale(void) {
    int fd = open(precious, O_RDWR | O_APPEND);
    syscall(SYS_close, fd);
    return fd;
}

/* Descriptors as another process sends them. */
static void send_one(int socket, int fd) {
    char byte = 'x', room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    sendmsg(socket, &message, 0);
}

static int receive_one(int socket) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd = -1;
    if (recvmsg(socket, &message, 0) == 1)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

int main(int count, char **arguments) {
    char memory[64];
    struct stat stat_;
    alarm(120);
    snprintf(precious, sizeof precious, "%s/precious", arguments[1]);
    int fd = open(precious, O_WRONLY | O_CREAT, 0644);
    write(fd, "precious", 8);
    close(fd);
    close(mkstemp(plain));

    int number = stale();
    check("closed for good", write(number, "GARBAGE", 7) == -1 && errno == EBADF);
    check("closed once", close(number) == -1 && errno == EBADF);

    number = stale();
    fd = open(plain, O_RDWR | O_TRUNC);
    check("a file has the number", fd == number);
    check("written", write(fd, "plain", 5) == 5 && pwrite(fd, "P", 1, 0) == 1);
    check("its size", fstat(fd, &stat_) == 0 && stat_.st_size == 5);
    check("read", pread(fd, memory, 64, 0) == 5 && !memcmp(memory, "Plain", 5));
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check("mapped", map != MAP_FAILED && !memcmp(map, "Plain", 5));
    check("closed", close(fd) == 0);
    show("after a file");

    number = stale();
    int ends[2];
    pipe(ends);
    check("a pipe has the number", ends[0] == number);
    write(ends[1], "through", 7);
    check("read from the pipe", read(ends[0], memory, 64) == 7 && !memcmp(memory, "through", 7));
    close(ends[0]);
    close(ends[1]);

    number = stale();
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    check("a socket has the number", ends[0] == number);
    check("sent", write(ends[0], "through", 7) == 7 && read(ends[1], memory, 64) == 7);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    check("watched", epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    close(epoll);

    int out = open(plain, O_WRONLY | O_TRUNC);
    number = stale();
    send_one(ends[1], out);
    fd = receive_one(ends[0]);
    check("a received file has the number", fd == number);
    check("written", write(fd, "received", 8) == 8 && fstat(out, &stat_) == 0 && stat_.st_size == 8);
    close(fd);

    number = stale();
    fd = eventfd(0, 0);
    unsigned long long one = 1, back = 0;
    check("an event has the number", fd == number && write(fd, &one, 8) == 8 && read(fd, &back, 8) == 8 && back == 1);
    close(fd);

    number = stale();
    fd = dup(out);
    check("a duplicate has the number", fd == number && write(fd, "again", 5) == 5);
    close(fd);
    close(out);

    /* The C library closes past its own `close`. */
    FILE *stream = fopen(plain, "r");
    number = fileno(stream);
    fd = open(precious, O_RDWR | O_APPEND);
    dup2(fd, number);
    close(fd);
    fclose(stream);
    fd = open(plain, O_WRONLY | O_TRUNC);
    check("a file after a stream", write(fd, "streamed", 8) == 8 && fstat(fd, &stat_) == 0 && stat_.st_size == 8);
    close(fd);

    number = stale();
    stream = fopen(plain, "w");
    check("a stream has the number", fileno(stream) == number);
    fputs("buffered", stream);
    check("flushed", fflush(stream) == 0 && fstat(number, &stat_) == 0 && stat_.st_size == 8);
    fclose(stream);

    number = stale();
    DIR *dir = opendir("/proc/self");
    check("a directory has the number", dirfd(dir) == number && readdir(dir) != NULL);
    check("its kind", fstat(dirfd(dir), &stat_) == 0 && S_ISDIR(stat_.st_mode) && fchdir(dirfd(dir)) == 0);
    check("files of it", (fd = openat(dirfd(dir), "stat", O_RDONLY)) >= 0 && read(fd, memory, 64) == 64);
    close(fd);
    closedir(dir);

    /* A directory's stream whose number becomes something else. */
    dir = opendir(arguments[1]);
    number = dirfd(dir);
    syscall(SYS_close, number);
    fd = open(plain, O_WRONLY | O_TRUNC);
    int names = 0;
    while (readdir(dir))
        names++;
    check("no names of a closed directory", names == 0);
    check("its number is a file's", fd == number && write(fd, "file", 4) == 4);
    closedir(dir);

    /* A child that inherits such a number. */
    number = stale();
    fd = open(plain, O_WRONLY | O_TRUNC);
    fflush(stdout);
    if (fork() == 0)
        _exit(write(fd, "child", 5) == 5 ? 0 : 1);
    int status;
    wait(&status);
    check("a child writes", status == 0 && fstat(fd, &stat_) == 0 && stat_.st_size == 5);
    close(fd);

    /* All numbers, the library's own too, and then files with them. */
    fd = open(precious, O_RDONLY);
    fflush(stdout);
    if (fork() == 0) {
        fd = open(precious, O_RDONLY);
        syscall(SYS_close_range, 3, ~0U, 0);
        int wrong = 0, files[700];
        for (int file = 0; file < 700; file++) {
            files[file] = open("/dev/null", O_RDWR);
            wrong += files[file] != file + 3;
        }
        char back[16];
        wrong += (fd = open(precious, O_RDONLY)) < 0 || read(fd, back, 16) != 8;
        for (int file = 0; file < 700; file++)
            wrong += fstat(files[file], &stat_) || !S_ISCHR(stat_.st_mode) || close(files[file]);
        syscall(SYS_exit_group, wrong != 0);
    }
    wait(&status);
    check("all are given out again", status == 0);
    close(fd);
    show("at the end");
    unlink(plain);
    return 0;
}
