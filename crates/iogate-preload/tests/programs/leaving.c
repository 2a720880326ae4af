/* How programs leave: children that end in a signal handler, wherever the signal meets them, and a program that cannot be replaced. The only
 * argument is a directory, which is empty; the name of each file written there ends with .ckpt. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 48
#define AT_ONCE 8

static const char *dir;

static void leave(int signal) { _exit(7); }

static void *allocate(void *argument) {
    void *blocks[64] = {NULL};
    /* Large enough that the allocator's lock is needed. */
    for (unsigned each = 0;; each = (each + 1) % 64) {
        free(blocks[each]);
        blocks[each] = malloc(2000 + each * 100);
    }
    return NULL;
}

static void child(int number) {
    char path[4096], piece[100] = {0};
    struct itimerval timer = {.it_value.tv_usec = 20000 + number * 211 % 20000};
    pthread_t thread;
    snprintf(path, sizeof path, "%s/%d.ckpt", dir, number % AT_ONCE);
    close(open(path, O_WRONLY | O_CREAT, 0644));
    signal(SIGALRM, leave);
    setitimer(ITIMER_REAL, &timer, NULL);
    pthread_create(&thread, NULL, allocate, NULL);
    if (number % 2) {
        /* The signal meets the other thread. */
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, NULL);
    }
    for (;;) {
        int fd = open(path, O_WRONLY | O_APPEND);
        write(fd, piece, sizeof piece);
        close(fd);
    }
}

static void signals(void) {
    int status, ended = 0, running = 0;
    for (int number = 0; number < CHILDREN; number++) {
        fflush(stdout);
        if (fork() == 0)
            child(number);
        if (++running == AT_ONCE) {
            ended += wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7;
            running--;
        }
    }
    while (running-- > 0)
        ended += wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7;
    printf("%d of %d have ended\n", ended, CHILDREN);
}

/* What has no name any more stays open, if no program takes this one's place. */
static void replaced(const char *name, const char *content) {
    char path[4096], memory[16] = {0}, kept[4096];
    char *arguments[] = {"nothing", NULL}, *environment[] = {NULL};
    snprintf(kept, sizeof kept, "%s/nameless", dir);
    int fd = open(kept, O_RDWR | O_CREAT | O_TRUNC, 0600);
    unlink(kept);
    write(fd, "kept", 4);
    snprintf(path, sizeof path, "/tmp/iogate-leaving-%d", getpid());
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    write(file, content, strlen(content));
    close(file);
    int result = execve(path, arguments, environment);
    printf("%s: %d %s, ", name, result, strerrorname_np(errno));
    ssize_t bytes = pread(fd, memory, sizeof memory, 0);
    printf("%zd bytes [%s]\n", bytes, bytes > 0 ? memory : strerrorname_np(errno));
    unlink(path);
    close(fd);
}

int main(int count, char **arguments) {
    dir = arguments[1];
    signals();
    replaced("text", "no program\n");
    replaced("a script of nothing", "#!/nothing/of/that/name\n");
    replaced("a script of text", "#!/etc/passwd\n");
    replaced("empty", "");
    for (int line = 0; line < 6; line++)
        printf("line %d\n", line);
    return 0;
}
