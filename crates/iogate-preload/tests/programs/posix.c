/* What a program sees of files: run in a plain directory and under the prefix, it must print the same. The only
 * argument is the directory, which is empty. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static long result_of(const char *what, long value) {
    int error = errno;
    if (value == -1)
        printf("%s: %s\n", what, strerrorname_np(error));
    else
        printf("%s: %ld\n", what, value);
    errno = 0;
    return value;
}
#define DO(call) (errno = 0, result_of(#call, (long)(call)))
#define SECTION(name) printf("== %s\n", name)

static void show(const char *path) {
    char memory[4096];
    int fd = open(path, O_RDONLY);
    ssize_t bytes = read(fd, memory, sizeof memory);
    printf("%s holds %zd [%.*s]\n", path, bytes, (int)(bytes > 0 ? bytes : 0), memory);
    close(fd);
}

static void wait_for(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    printf("child ended with %d\n", status);
}

static void opening(void) {
    SECTION("open");
    struct stat stat_;
    DO(open("missing", O_RDONLY));
    DO(open("missing", O_WRONLY));
    DO(open("missing/file", O_WRONLY | O_CREAT, 0644));
    int fd = DO(open("file", O_RDWR | O_CREAT | O_EXCL, 0664));
    DO(open("file", O_RDWR | O_CREAT | O_EXCL, 0664));
    DO(open("file", O_RDONLY | O_DIRECTORY));
    DO(open("file/", O_RDONLY));
    DO(open("file/x", O_RDONLY));
    DO(open("new/", O_WRONLY | O_CREAT, 0644));
    DO(open("", O_RDONLY));
    DO(open(".", O_WRONLY));
    DO(fcntl(fd, F_GETFL) & ~(O_LARGEFILE | 0100000));
    DO(fcntl(fd, F_GETFD));
    DO(fcntl(fd, F_SETFD, FD_CLOEXEC));
    DO(fcntl(fd, F_GETFD));
    DO(close(fd));
    DO(close(fd));
    DO(read(fd, &stat_, 1));
    fd = DO(open("file", O_RDONLY | O_CLOEXEC));
    DO(fcntl(fd, F_GETFD));
    DO(write(fd, "x", 1));
    DO(ftruncate(fd, 1));
    DO(close(fd));
    fd = DO(open("file", O_WRONLY));
    DO(read(fd, &stat_, 1));
    DO(close(fd));
    umask(027);
    fd = DO(creat("masked", 0666));
    DO(fstat(fd, &stat_));
    printf("mode %o size %ld links %ld\n", stat_.st_mode, (long)stat_.st_size, (long)stat_.st_nlink);
    umask(022);
    close(fd);
    char name[300];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    DO(open(name, O_WRONLY | O_CREAT, 0644));
    fd = DO(open(".", O_TMPFILE | O_RDWR, 0600));
    DO(write(fd, "nameless", 8));
    DO(lseek(fd, 0, SEEK_SET));
    DO(read(fd, name, 300));
    DO(fstat(fd, &stat_));
    printf("links %ld\n", (long)stat_.st_nlink);
    close(fd);
    fd = DO(open("file", O_PATH));
    DO(read(fd, name, 1));
    DO(fstat(fd, &stat_));
    printf("mode %o\n", stat_.st_mode);
    close(fd);
    fd = DO(open(".", O_RDONLY | O_DIRECTORY));
    int inner = DO(openat(fd, "file", O_RDWR));
    close(inner);
    DO(openat(fd, "../nothing-there-at-all", O_RDONLY));
    DO(mkdirat(fd, "sub", 0755));
    inner = DO(openat(fd, "sub/../sub/./../file", O_RDONLY));
    close(inner);
    DO(read(fd, name, 1));
    DO(write(fd, name, 1));
    close(fd);
    char template[] = "tmp-XXXXXX";
    fd = DO(mkstemp(template));
    DO(fstat(fd, &stat_));
    printf("mode %o\n", stat_.st_mode);
    close(fd);
    unlink(template);
    char wrong[] = "tmp-XXXXX";
    DO(mkstemp(wrong));
    char dir[] = "dir-XXXXXX";
    printf("%s\n", mkdtemp(dir) ? "made" : "not made");
    rmdir(dir);
}

/* What fails for want of a descriptor has done nothing. */
static void opening_without_room(void) {
    SECTION("no descriptor");
    struct rlimit before, none;
    int fd = open("room", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write(fd, "stays", 5);
    close(fd);
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = fd;
    setrlimit(RLIMIT_NOFILE, &none);
    DO(open("room", O_WRONLY | O_TRUNC));
    DO(open("no-room", O_WRONLY | O_CREAT, 0644));
    setrlimit(RLIMIT_NOFILE, &before);
    show("room");
    DO(access("no-room", F_OK));
}

static void data(void) {
    SECTION("data");
    char memory[64];
    int fd = DO(open("data", O_RDWR | O_CREAT | O_TRUNC, 0644));
    DO(write(fd, "0123456789", 10));
    DO(lseek(fd, 0, SEEK_CUR));
    DO(lseek(fd, -3, SEEK_END));
    DO(read(fd, memory, 64));
    DO(read(fd, memory, 64));
    DO(lseek(fd, -1, SEEK_SET));
    DO(lseek(fd, 0, 99));
    DO(pread(fd, memory, 4, 3));
    printf("[%.4s]\n", memory);
    DO(pread(fd, memory, 4, 8));
    DO(pread(fd, memory, 4, 10));
    DO(pread(fd, memory, 4, 1000));
    DO(pread(fd, memory, 4, -1));
    DO(pwrite(fd, "X", 1, -1));
    DO(pwrite(fd, "END", 3, 20));
    DO(lseek(fd, 0, SEEK_END));
    DO(pread(fd, memory, 64, 0));
    printf("%d %d\n", memory[12], memory[20]);
    struct iovec parts[3] = {{"abc", 3}, {"", 0}, {"defg", 4}};
    DO(lseek(fd, 0, SEEK_SET));
    DO(writev(fd, parts, 3));
    DO(pwritev(fd, parts, 1, 30));
    DO(writev(fd, parts, -1));
    char a[2], b[5];
    struct iovec into[2] = {{a, 2}, {b, 5}};
    DO(preadv(fd, into, 2, 1));
    printf("[%.2s][%.5s]\n", a, b);
    DO(lseek(fd, 0, SEEK_SET));
    DO(readv(fd, into, 2));
    DO(preadv2(fd, into, 2, -1, 0));
    DO(lseek(fd, 0, SEEK_CUR));
    DO(pwritev2(fd, parts, 1, 0, RWF_DSYNC));
    DO(read(fd, memory, 0));
    DO(write(fd, memory, 0));
    DO(write(fd, NULL, 5));
    DO(fsync(fd));
    DO(fdatasync(fd));
    DO(ftruncate(fd, 5));
    DO(ftruncate(fd, -1));
    DO(lseek(fd, 0, SEEK_END));
    DO(truncate("data", 7));
    DO(truncate("missing", 7));
    DO(truncate(".", 7));
    DO(lseek(fd, 0, SEEK_END));
    DO(posix_fallocate(fd, 0, 100));
    DO(lseek(fd, 0, SEEK_END));
    DO(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100000));
    DO(lseek(fd, 0, SEEK_END));
    DO(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    DO(ioctl(fd, 0x5401, memory)); /* TCGETS */
    DO(isatty(fd));
    close(fd);
    fd = DO(open("sparse", O_RDWR | O_CREAT | O_TRUNC, 0644));
    DO(pwrite(fd, "x", 1, 1 << 20));
    DO(lseek(fd, 0, SEEK_DATA));
    DO(lseek(fd, 1 << 20, SEEK_HOLE));
    DO(lseek(fd, 2 << 20, SEEK_DATA));
    close(fd);
    fd = DO(open("synced", O_WRONLY | O_CREAT | O_SYNC, 0644));
    DO(write(fd, "durable", 7));
    close(fd);
    show("synced");
    size_t size = 5 << 20;
    char *large = malloc(size), *back = malloc(size);
    for (size_t at = 0; at < size; at++)
        large[at] = (char)(at * 2654435761u >> 13);
    fd = DO(open("large", O_RDWR | O_CREAT | O_TRUNC, 0644));
    DO(write(fd, large, size));
    DO(pread(fd, back, size, 0));
    printf("same %d\n", !memcmp(large, back, size));
    int out = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0644);
    off_t offset = 0;
    /* Either the kernel copies, or the error is one on which programs copy themselves. */
    ssize_t copied = copy_file_range(fd, &offset, out, NULL, 1000, 0);
    printf("copied or told to copy: %d\n", copied == 1000 || errno == EXDEV || errno == EINVAL || errno == ENOSYS);
    copied = sendfile(out, fd, NULL, 1000);
    printf("sent or told to copy: %d\n", copied >= 0 || errno == EINVAL || errno == ENOSYS);
    close(out);
    close(fd);
    unlink("copy");
    free(large);
    free(back);
}

static void appending(void) {
    SECTION("append");
    int fd = DO(open("log", O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0644));
    int other = DO(open("log", O_WRONLY | O_APPEND));
    DO(write(fd, "one ", 4));
    DO(write(other, "two ", 4));
    DO(write(fd, "three ", 6));
    DO(lseek(fd, 0, SEEK_CUR));
    DO(pwrite(fd, "four ", 5, 0));
    show("log");
    DO(fcntl(fd, F_SETFL, 0));
    DO(fcntl(fd, F_GETFL) & O_APPEND);
    DO(pwrite(fd, "ONE", 3, 0));
    close(fd);
    close(other);
    show("log");
    fd = open("lines", O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0644);
    for (int child = 0; child < 4; child++)
        if (fork() == 0) {
            char line[16];
            for (int number = 0; number < 50; number++) {
                snprintf(line, sizeof line, "%d %08d\n", child, number);
                if (write(fd, line, 11) != 11)
                    _exit(1);
            }
            _exit(0);
        }
    for (int child = 0; child < 4; child++)
        wait(NULL);
    close(fd);
    FILE *file = fopen("lines", "r");
    int next[4] = {0}, child, number, lines = 0, in_order = 1;
    while (fscanf(file, "%d %d\n", &child, &number) == 2) {
        in_order &= child >= 0 && child < 4 && number == next[child]++;
        lines++;
    }
    fclose(file);
    printf("%d lines, each child's in order %d\n", lines, in_order);
}

static void sharing(const char *self) {
    SECTION("sharing a position");
    char memory[16] = {0};
    int fd = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "abcdefghijklmnop", 16);
    DO(lseek(fd, 0, SEEK_SET));
    int copy = DO(dup(fd));
    int high = DO(fcntl(fd, F_DUPFD, 100));
    int cloexec = DO(fcntl(fd, F_DUPFD_CLOEXEC, 100));
    DO(fcntl(cloexec, F_GETFD));
    DO(dup2(fd, 50));
    DO(dup2(fd, fd));
    DO(dup3(fd, fd, 0));
    DO(dup3(fd, 51, O_CLOEXEC));
    DO(fcntl(51, F_GETFD));
    DO(dup2(999, fd));
    DO(dup2(fd, -1));
    DO(read(fd, memory, 2));
    DO(read(copy, memory + 2, 2));
    DO(read(50, memory + 4, 2));
    DO(read(high, memory + 6, 2));
    printf("%s\n", memory);
    DO(close(fd));
    DO(read(copy, memory, 1));
    DO(lseek(51, 0, SEEK_CUR));
    int again = DO(open("shared", O_RDONLY));
    DO(lseek(again, 0, SEEK_CUR));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char mine[2];
        _exit(read(copy, mine, 2) == 2 && mine[0] == 'j' && lseek(copy, 0, SEEK_CUR) == 11 ? 0 : 1);
    }
    wait_for(child);
    DO(lseek(copy, 0, SEEK_CUR));
    fflush(stdout);
    child = fork();
    if (child == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", copy);
        execl(self, self, "--read", number, (char *)NULL);
        _exit(9);
    }
    wait_for(child);
    DO(lseek(copy, 0, SEEK_CUR));
    fflush(stdout);
    child = vfork();
    if (child == 0) {
        dup2(copy, 0);
        close(copy);
        execl(self, self, "--read", "0", (char *)NULL);
        _exit(9);
    }
    wait_for(child);
    DO(lseek(copy, 0, SEEK_CUR));
    DO(lseek(0, 0, SEEK_CUR) == lseek(copy, 0, SEEK_CUR) && lseek(copy, 0, SEEK_CUR) != 0);
    close(copy);
    close(high);
    close(cloexec);
    close(again);
    /* A descriptor of ours becomes one of the kernel's, and back. */
    fd = open("shared", O_RDONLY);
    int null = open("/dev/null", O_RDONLY);
    DO(dup2(null, fd));
    DO(read(fd, memory, 1));
    close(fd);
    DO(dup2(50, null));
    DO(read(null, memory, 1));
    DO(close_range(50, 60, 0));
    DO(close(50));
    close(null);
    DO(open("shared", O_RDONLY) == null || 1);
    close_range(3, ~0u, 0);
    fd = DO(open("shared", O_RDONLY));
    DO(read(fd, memory, 1));
    close(fd);
}

static int read_inherited(int fd) {
    char memory[3] = {0};
    ssize_t bytes = read(fd, memory, 2);
    off_t at = lseek(fd, 0, SEEK_CUR);
    char name[32];
    snprintf(name, sizeof name, "%zd [%s] %ld", bytes, memory, (long)at);
    fprintf(stdout, "inherited: %s\n", name);
    return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }
static int no_dots(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void directories(void) {
    SECTION("directories");
    struct stat stat_;
    char name[32];
    DO(mkdir("list", 0755));
    DO(mkdir("list", 0755));
    DO(mkdir("missing/list", 0755));
    for (int number = 0; number < 300; number++) {
        snprintf(name, sizeof name, "list/entry-%03d", number);
        close(open(name, O_WRONLY | O_CREAT, 0644));
    }
    DIR *dir = opendir("list");
    int count = 0, types = 0, dots = 0;
    long middle = 0;
    char at_middle[256] = "", after_seek[256] = "";
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        count++;
        dots += entry->d_name[0] == '.';
        types += entry->d_type == DT_REG;
        if (count == 100)
            middle = telldir(dir);
        if (count == 101)
            strcpy(at_middle, entry->d_name);
    }
    printf("%d entries, %d regular, %d dots\n", count, types, dots);
    seekdir(dir, middle);
    entry = readdir(dir);
    strcpy(after_seek, entry->d_name);
    printf("seek finds it %d\n", !strcmp(at_middle, after_seek));
    rewinddir(dir);
    for (count = 0; readdir(dir); count++)
        ;
    printf("%d after rewinding\n", count);
    DO(fstatat(dirfd(dir), "entry-007", &stat_, 0));
    DO(closedir(dir));
    int fd = open("list", O_RDONLY | O_DIRECTORY);
    dir = fdopendir(fd);
    for (count = 0; readdir(dir); count++)
        ;
    closedir(dir);
    printf("%d by descriptor\n", count);
    struct dirent **list;
    count = scandir("list", &list, no_dots, by_name);
    printf("%d scanned, %s to %s\n", count, list[0]->d_name, list[count - 1]->d_name);
    while (count--)
        free(list[count]);
    free(list);
    printf("%s\n", opendir("missing") ? "opened" : strerrorname_np(errno));
    printf("%s\n", opendir("file") ? "opened" : strerrorname_np(errno));
    fd = open("file", O_RDONLY);
    printf("%s\n", fdopendir(fd) ? "opened" : strerrorname_np(errno));
    close(fd);
    DO(rmdir("list"));
    DO(unlink("list"));
    DO(rmdir("file"));
    DO(rmdir("missing"));
    for (int number = 0; number < 300; number++) {
        snprintf(name, sizeof name, "list/entry-%03d", number);
        if (unlink(name))
            printf("%s stays\n", name);
    }
    DO(rmdir("list"));
    DO(remove("list"));
}

static void names(void) {
    SECTION("names");
    struct stat stat_;
    char text[PATH_MAX];
    close(open("old", O_WRONLY | O_CREAT | O_TRUNC, 0644));
    DO(rename("old", "new"));
    DO(rename("old", "new"));
    DO(access("old", F_OK));
    DO(access("new", R_OK));
    DO(access("new", X_OK));
    DO(faccessat(AT_FDCWD, "new", W_OK, AT_EACCESS));
    DO(link("new", "hard"));
    DO(link("new", "hard"));
    DO(stat("new", &stat_));
    printf("links %ld\n", (long)stat_.st_nlink);
    DO(symlink("new", "soft"));
    DO(symlink("new", "soft"));
    ssize_t bytes = DO(readlink("soft", text, sizeof text));
    printf("[%.*s]\n", (int)bytes, text);
    DO(readlink("soft", text, 2));
    DO(readlink("new", text, 100));
    DO(readlink("missing", text, 100));
    DO(lstat("soft", &stat_));
    printf("is a link %d, size %ld\n", S_ISLNK(stat_.st_mode), (long)stat_.st_size);
    DO(stat("soft", &stat_));
    printf("is a file %d\n", S_ISREG(stat_.st_mode));
    int fd = DO(open("soft", O_RDONLY));
    close(fd);
    DO(open("soft", O_RDONLY | O_NOFOLLOW));
    DO(symlink("nowhere", "dangling"));
    DO(stat("dangling", &stat_));
    DO(lstat("dangling", &stat_));
    DO(symlink("loop", "loop"));
    DO(stat("loop", &stat_));
    DO(open("loop", O_RDONLY));
    /* An absolute link, with whatever the directory is called here. */
    char here[PATH_MAX / 2];
    printf("%s\n", getcwd(here, sizeof here) ? "somewhere" : "nowhere");
    snprintf(text, sizeof text, "%s/new", here);
    DO(symlink(text, "absolute"));
    DO(stat("absolute", &stat_));
    fd = DO(open("absolute", O_WRONLY));
    DO(write(fd, "by link", 7));
    close(fd);
    show("new");
    /* Exclusive: a link that leads nowhere is something, by whichever way it is found. */
    DO(open("dangling", O_WRONLY | O_CREAT | O_EXCL, 0644));
    DO(symlink(here, "absolute-here"));
    DO(open("absolute-here/dangling", O_WRONLY | O_CREAT | O_EXCL, 0644));
    DO(access("nowhere", F_OK));
    DO(open("absolute-here/soft", O_WRONLY | O_CREAT | O_EXCL, 0644));
    fd = DO(open("absolute-here/exclusive", O_WRONLY | O_CREAT | O_EXCL, 0644));
    close(fd);
    DO(symlink("/dev/null", "outside"));
    DO(stat("outside", &stat_));
    printf("is a device %d\n", S_ISCHR(stat_.st_mode));
    fd = DO(open("outside", O_WRONLY));
    DO(write(fd, "x", 1));
    close(fd);
    DO(mkdir("d1", 0755));
    DO(mkdir("d1/d2", 0755));
    snprintf(text, sizeof text, "%s/d1", here);
    DO(symlink(text, "to-d1"));
    DO(mkdir("to-d1/d3", 0755));
    DO(stat("d1/d3", &stat_));
    DO(stat("to-d1/d3/../d2", &stat_));
    DO(rename("to-d1/d3", "d4"));
    DO(stat("d4", &stat_));
    DO(chdir("to-d1/d2"));
    DO(stat("../../new", &stat_));
    printf("%s\n", strcmp(getcwd(text, sizeof text) + strlen(here), "/d1/d2") ? text : "in d1/d2");
    DO(chdir("../.."));
    DO(chdir("new"));
    DO(chdir("missing"));
    printf("%s\n", realpath("to-d1/../soft", text) ? text + strlen(here) : strerrorname_np(errno));
    printf("%s\n", realpath("missing", text) ? text : strerrorname_np(errno));
    fd = open("d1", O_RDONLY | O_DIRECTORY);
    DO(fchdir(fd));
    DO(stat("d2", &stat_));
    DO(chdir(".."));
    close(fd);
    /* The working directory goes with its name, and with that of what it is in. */
    DO(mkdir("goes", 0755));
    DO(mkdir("goes/with", 0755));
    DO(chdir("goes/with"));
    DO(rename("../../goes", "../../gone"));
    printf("%s\n", strcmp(getcwd(text, sizeof text) + strlen(here), "/gone/with") ? text : "in gone/with");
    DO(rename("../with", "../within"));
    close(open("made", O_WRONLY | O_CREAT, 0644));
    DO(access("../../gone/within/made", F_OK));
    fflush(stdout);
    pid_t shell = fork();
    if (shell == 0) {
        execl("/bin/sh", "sh", "-c", "ls ../within", (char *)NULL);
        _exit(9);
    }
    wait_for(shell);
    DO(chdir("../.."));
    /* A rename is no failure for a path of an open file that gets too long by it. */
    char far[PATH_MAX] = "gone";
    while (strlen(far) < 3850) {
        strcat(far, "/a-long-name-on-the-way-to-a-path-that-is-far-too-long-for-the-one-who-renames-what-it-is-in");
        mkdir(far, 0755);
    }
    strcat(far, "/file");
    fd = DO(open(far, O_RDWR | O_CREAT, 0644));
    char longer[251] = {0};
    memset(longer, 'x', 250);
    DO(rename("gone/within", "gone/other"));
    DO(rename("gone", longer));
    DO(write(fd, "still", 5));
    DO(rename(longer, "gone"));
    close(fd);
    DO(rename("new", "d1"));
    DO(rename("d1", "new"));
    DO(rename("d1", "d1/d2/d5"));
    DO(renameat2(AT_FDCWD, "new", AT_FDCWD, "hard", RENAME_NOREPLACE));
    DO(rename("new", "/dev/shm/not-here"));
    DO(link("new", "/dev/shm/not-here"));
    fd = open("moves", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "moved", 5);
    DO(rename("moves", "d1/moved"));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char memory[5];
        _exit(pread(fd, memory, 5, 0) == 5 ? 0 : 1);
    }
    wait_for(child);
    DO(unlink("d1/moved"));
    DO(pread(fd, text, 5, 0));
    DO(fstat(fd, &stat_));
    printf("links %ld\n", (long)stat_.st_nlink);
    close(fd);
    /* What is open by one way, and renamed by another, through a link. */
    const char *ways[][3] = {{"d1/way", "by/way", "by/way2"},
                             {"d1/way", "to-d1/way", "to-d1/way3"},
                             {"by/way", "d1/way", "d1/way4"},
                             {"by/dir/way", "to-d1/dir", "d1/dir2"},
                             {"d1/dir/way", "by/dir", "dir2"}};
    DO(symlink("d1", "by"));
    for (int i = 0; i < 5; i++) {
        mkdir("d1/dir", 0755);
        fd = DO(open(ways[i][0], O_RDWR | O_CREAT | O_EXCL, 0644));
        write(fd, "way", 3);
        DO(rename(ways[i][1], ways[i][2]));
        fflush(stdout);
        child = fork();
        if (child == 0)
            _exit(pread(fd, text, 3, 0) == 3 ? 0 : 1);
        wait_for(child);
        close(fd);
    }
    /* One with two descriptors, whose name is exchanged with another's. */
    close(open("d1/exchanged", O_WRONLY | O_CREAT, 0644));
    fd = DO(open("d1/exchange", O_RDWR | O_CREAT, 0644));
    int again = dup(fd);
    write(fd, "mine", 4);
    DO(renameat2(AT_FDCWD, "d1/exchange", AT_FDCWD, "d1/exchanged", RENAME_EXCHANGE));
    fflush(stdout);
    child = fork();
    if (child == 0)
        _exit(pread(fd, text, 4, 0) == 4 ? 0 : 1);
    wait_for(child);
    close(again);
    close(fd);
    DO(mkdir("d1/dir", 0755));
    DO(chdir("d1/dir"));
    DO(rename("../../by/dir", "../dir3"));
    printf("%s\n", strcmp(getcwd(text, sizeof text) + strlen(here), "/d1/dir3") ? text : "in dir3");
    DO(chdir("../.."));
    DO(mkfifo("fifo", 0644));
    DO(stat("fifo", &stat_));
    printf("is a fifo %d\n", S_ISFIFO(stat_.st_mode));
    DO(unlink("fifo"));
    DO(stat("..//", &stat_));
    DO(unlinkat(AT_FDCWD, "d4", 0));
    DO(unlinkat(AT_FDCWD, "d4", AT_REMOVEDIR));
}

static void attributes(void) {
    SECTION("attributes");
    struct stat stat_;
    char value[64];
    close(open("attr", O_WRONLY | O_CREAT | O_TRUNC, 0644));
    DO(chmod("attr", 0600));
    DO(stat("attr", &stat_));
    printf("mode %o\n", stat_.st_mode);
    int fd = open("attr", O_RDWR);
    DO(fchmod(fd, 0640));
    DO(fstat(fd, &stat_));
    printf("mode %o\n", stat_.st_mode);
    DO(chmod("missing", 0600));
    if (geteuid() == 0) {
        DO(chown("attr", 1234, 5678));
        DO(stat("attr", &stat_));
        printf("%d:%d\n", stat_.st_uid, stat_.st_gid);
        DO(fchown(fd, -1, 99));
        DO(symlink("attr", "attr-link"));
        DO(lchown("attr-link", 77, 88));
        DO(stat("attr", &stat_));
        printf("%d:%d\n", stat_.st_uid, stat_.st_gid);
        DO(lstat("attr-link", &stat_));
        printf("%d:%d\n", stat_.st_uid, stat_.st_gid);
    }
    struct timespec times[2] = {{1000, 123456789}, {2000, 987654321}};
    DO(utimensat(AT_FDCWD, "attr", times, 0));
    DO(stat("attr", &stat_));
    printf("%ld.%09ld %ld.%09ld\n", stat_.st_atim.tv_sec, stat_.st_atim.tv_nsec, stat_.st_mtim.tv_sec, stat_.st_mtim.tv_nsec);
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = 3000;
    DO(futimens(fd, times));
    DO(stat("attr", &stat_));
    printf("%ld %ld\n", stat_.st_atim.tv_sec, stat_.st_mtim.tv_sec);
    struct timeval in_us[2] = {{5, 6}, {7, 8}};
    DO(utimes("attr", in_us));
    DO(stat("attr", &stat_));
    printf("%ld.%09ld %ld.%09ld\n", stat_.st_atim.tv_sec, stat_.st_atim.tv_nsec, stat_.st_mtim.tv_sec, stat_.st_mtim.tv_nsec);
    DO(futimens(fd, NULL));
    DO(stat("attr", &stat_));
    printf("recent %d\n", stat_.st_mtim.tv_sec > 1000000000);
    struct statx statx_;
    DO(statx(AT_FDCWD, "attr", 0, STATX_BASIC_STATS, &statx_));
    printf("statx mode %o, mask %x\n", statx_.stx_mode, statx_.stx_mask & STATX_BASIC_STATS);
    DO(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &statx_));
    DO(statx(fd, "", 0, STATX_BASIC_STATS, &statx_));
    DO(setxattr("attr", "user.colour", "blue", 4, 0));
    DO(setxattr("attr", "user.colour", "green", 5, XATTR_CREATE));
    DO(fsetxattr(fd, "user.shape", "round", 5, 0));
    DO(getxattr("attr", "user.colour", value, sizeof value));
    DO(getxattr("attr", "user.colour", value, 2));
    DO(getxattr("attr", "user.colour", NULL, 0));
    DO(fgetxattr(fd, "user.missing", value, sizeof value));
    DO(listxattr("attr", NULL, 0));
    DO(flistxattr(fd, value, sizeof value));
    DO(removexattr("attr", "user.colour"));
    DO(removexattr("attr", "user.colour"));
    /* The open file's, and not those of another one that has got its name. */
    close(open("other-attr", O_WRONLY | O_CREAT, 0644));
    DO(setxattr("other-attr", "user.shape", "square", 6, 0));
    DO(rename("other-attr", "attr"));
    DO(fsetxattr(fd, "user.late", "yes", 3, 0));
    DO(getxattr("attr", "user.late", value, sizeof value));
    DO(fgetxattr(fd, "user.late", value, sizeof value));
    DO(fgetxattr(fd, "user.shape", value, sizeof value));
    DO(fremovexattr(fd, "user.shape"));
    DO(getxattr("attr", "user.shape", value, sizeof value));
    DO(flistxattr(fd, NULL, 0));
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    DO(fsetxattr(dir, "user.of-directory", "yes", 3, 0));
    DO(fgetxattr(dir, "user.of-directory", value, sizeof value));
    DO(fremovexattr(dir, "user.of-directory"));
    DO(close(dir));
    int path = open("attr", O_PATH);
    DO(fsetxattr(path, "user.by-path", "no", 2, 0));
    DO(fgetxattr(path, "user.shape", value, sizeof value));
    DO(close(path));
    struct statvfs space;
    DO(statvfs(".", &space));
    DO(fstatvfs(fd, &space));
    printf("name max %ld\n", space.f_namemax);
    close(fd);
}

static void streams(void) {
    SECTION("streams");
    char line[64];
    FILE *file = fopen("stream", "w");
    DO(fprintf(file, "first %d\nsecond\nthird\n", 1));
    DO(ftell(file));
    DO(fileno(file) >= 3);
    DO(fclose(file));
    show("stream");
    printf("%s\n", fopen("missing", "r") ? "opened" : strerrorname_np(errno));
    printf("%s\n", fopen("stream", "wx") ? "opened" : strerrorname_np(errno));
    printf("%s\n", fopen("stream", "?") ? "opened" : strerrorname_np(errno));
    file = fopen("stream", "r+");
    printf("%s", fgets(line, sizeof line, file));
    int c = fgetc(file);
    DO(c);
    DO(ungetc('S', file));
    DO(ftell(file));
    printf("%s", fgets(line, sizeof line, file));
    DO(fseek(file, -6, SEEK_END));
    printf("%s", fgets(line, sizeof line, file));
    DO(fgetc(file));
    DO(feof(file));
    DO(fseek(file, 0, SEEK_SET));
    DO(feof(file));
    DO(fwrite("FIRST", 1, 5, file));
    DO(fflush(file));
    DO(fseek(file, 8, SEEK_SET));
    printf("%s", fgets(line, sizeof line, file));
    DO(fclose(file));
    show("stream");
    file = fopen("stream", "a+");
    DO(fputs("fourth\n", file) >= 0);
    DO(fseek(file, 0, SEEK_SET));
    printf("%s", fgets(line, sizeof line, file));
    DO(fseek(file, 0, SEEK_SET));
    DO(fputs("fifth\n", file) >= 0);
    DO(fclose(file));
    show("stream");
    file = fopen("stream", "a");
    DO(ftell(file));
    DO(fputs("sixth\n", file) >= 0);
    DO(fclose(file));
    int low = open("stream", O_WRONLY);
    DO(fdopen(low, "r") != NULL);
    DO(fdopen(low, "r+") != NULL);
    file = fdopen(low, "a");
    DO(ftell(file));
    DO(fputs("seventh\n", file) >= 0);
    DO(fcntl(low, F_GETFL) & O_APPEND);
    DO(fclose(file));
    low = open("stream", O_RDONLY);
    DO(fdopen(low, "w") != NULL);
    DO(close(low));
    show("stream");
    file = fopen("stream", "r");
    file = freopen("stream", "a", file);
    DO(ftell(file));
    DO(fclose(file));
    file = fopen("stream", "r");
    DO(fputs("no", file));
    DO(ferror(file) != 0);
    clearerr(file);
    file = freopen("file", "w", file);
    DO(fputs("reopened\n", file) >= 0);
    DO(fclose(file));
    show("file");
    int fd = open("stream", O_RDWR);
    file = fdopen(fd, "r");
    DO(fileno(file) == fd);
    printf("%s", fgets(line, sizeof line, file));
    DO(fclose(file));
    DO(close(fd));
    file = fopen("large", "r");
    long sum = 0, count = 0;
    setvbuf(file, NULL, _IOFBF, 12345);
    while ((c = getc(file)) != EOF)
        sum += c, count++;
    printf("%ld bytes, sum %ld\n", count, sum);
    fclose(file);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf("before, unwritten; ");
        int out = open("redirected", O_WRONLY | O_CREAT | O_TRUNC, 0644);
        dup2(out, 1);
        close(out);
        printf("printed\n");
        puts("put");
        fflush(stdout);
        int in = open("stream", O_RDONLY);
        dup2(in, 0);
        char word[32];
        if (scanf("%31s", word) == 1)
            printf("scanned %s\n", word);
        exit(0);
    }
    wait_for(child);
    show("redirected");
    fflush(stdout);
    child = fork();
    if (child == 0) {
        if (!freopen("reopened", "w", stdout))
            _exit(1);
        printf("standard output\n");
        exit(0);
    }
    wait_for(child);
    show("reopened");
}

static void memory(void) {
    SECTION("memory");
    int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int page = 0; page < 3; page++) {
        char text[4096];
        memset(text, 'a' + page, sizeof text);
        write(fd, text, sizeof text);
    }
    write(fd, "tail", 4);
    char *map = mmap(NULL, 5 * 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    printf("%c %c %c %.4s %d\n", map[0], map[4096], map[2 * 4096], map + 3 * 4096, map[3 * 4096 + 4]);
    DO(munmap(map, 5 * 4096));
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
    map[0] = 'X';
    munmap(map, 4096);
    char first;
    pread(fd, &first, 1, 4096);
    printf("%c\n", first);
    printf("%s\n", mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? strerrorname_np(errno) : "mapped");
    printf("%s\n", mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 5) == MAP_FAILED ? strerrorname_np(errno) : "mapped");
    close(fd);
    fd = open("mapped", O_RDONLY);
    map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 8192);
    printf("%c\n", map[4095]);
    munmap(map, 4096);
    printf("%s\n", mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? strerrorname_np(errno) : "mapped");
    close(fd);
}

static pid_t locking_child(int fd, int operation) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(flock(fd, operation) == 0 ? 0 : errno);
    }
    return child;
}

static void on_alarm(int signal) {
    (void)signal;
}

/* What is no lock, or cannot be one of this descriptor; and a wait that a signal ends. */
static void refused_locks(int fd) {
    struct flock no_locks[] = {
        {.l_type = 7, .l_whence = SEEK_SET},
        {.l_type = F_WRLCK, .l_whence = 9},
        {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = -5},
        {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = -6},
        {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LONG_MAX, .l_len = 2},
    };
    for (size_t i = 0; i < sizeof no_locks / sizeof *no_locks; i++)
        DO(fcntl(fd, F_SETLK, &no_locks[i]));
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    DO(fcntl(fd, F_GETLK, &lock));
    int reads = open("locked", O_RDONLY), writes = open("locked", O_WRONLY), path = open("locked", O_PATH);
    lock.l_type = F_WRLCK;
    DO(fcntl(reads, F_SETLK, &lock));
    DO(fcntl(path, F_SETLK, &lock));
    DO(fcntl(fd, F_GETLK, &lock));
    printf("%s\n", lock.l_type == F_UNLCK ? "nobody has it" : "somebody has it");
    lock.l_type = F_RDLCK;
    DO(fcntl(writes, F_SETLK, &lock));
    DO(fcntl(reads, F_SETLK, &lock));
    close(reads);
    close(writes);
    close(path);
    lock.l_type = F_WRLCK;
    DO(fcntl(fd, F_SETLK, &lock));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct sigaction action = {.sa_handler = on_alarm};
        sigaction(SIGALRM, &action, NULL);
        ualarm(200000, 0);
        _exit(fcntl(fd, F_SETLKW, &lock) == -1 && errno == EINTR ? 0 : 1);
    }
    wait_for(child);
    lock.l_type = F_UNLCK;
    DO(fcntl(fd, F_SETLK, &lock));
}

static void locks(void) {
    SECTION("locks");
    int fd = open("locked", O_RDWR | O_CREAT, 0644);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
    DO(fcntl(fd, F_SETLK, &lock));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct flock mine = lock;
        int refused = fcntl(fd, F_SETLK, &mine) == -1 && (errno == EAGAIN || errno == EACCES);
        /* The server does not say which process: it may be another machine's. */
        int held = fcntl(fd, F_GETLK, &mine) == 0 && mine.l_type == F_WRLCK && (mine.l_pid == getppid() || mine.l_pid == 0);
        held = held && mine.l_start == 10 && mine.l_len == 5;
        mine = lock;
        mine.l_start = 20;
        int apart = fcntl(fd, F_SETLK, &mine) == 0;
        _exit(refused && held && apart ? 0 : refused + 2 * held + 4 * apart);
    }
    wait_for(child);
    lock.l_type = F_UNLCK;
    DO(fcntl(fd, F_SETLK, &lock));
    refused_locks(fd);
    DO(lockf(fd, F_TLOCK, 10));
    DO(lockf(fd, F_ULOCK, 10));
    int other = open("locked", O_RDWR), null = open("/dev/null", O_RDONLY);
    /* A descriptor that becomes another one's is closed, and with it go the process's locks of its file. */
    int becomes[] = {other, null};
    for (int i = 0; i < 2; i++) {
        int replaced = dup(fd);
        lock.l_type = F_WRLCK;
        DO(fcntl(replaced, F_SETLK, &lock));
        dup2(becomes[i], replaced);
        fflush(stdout);
        child = fork();
        if (child == 0)
            _exit(fcntl(fd, F_SETLK, &lock) == 0 ? 0 : 1);
        wait_for(child);
        close(replaced);
    }
    close(null);
    DO(flock(fd, LOCK_EX));
    DO(flock(other, LOCK_EX | LOCK_NB));
    DO(flock(fd, LOCK_UN));
    DO(flock(other, LOCK_SH | LOCK_NB));
    DO(flock(other, LOCK_UN));
    close(fd);
    /* A lock is an open file's, whoever has that: a child's is its parent's. */
    fd = open("locked", O_RDWR);
    DO(flock(fd, LOCK_EX));
    wait_for(locking_child(fd, LOCK_EX | LOCK_NB));
    DO(flock(other, LOCK_EX | LOCK_NB));
    wait_for(locking_child(fd, LOCK_UN));
    DO(flock(other, LOCK_EX | LOCK_NB));
    wait_for(locking_child(fd, LOCK_EX | LOCK_NB));
    DO(flock(other, LOCK_UN));
    close(fd);
    /* Also one that the child has taken, and that of a child that goes on. */
    fd = open("locked", O_RDWR | O_CLOEXEC);
    wait_for(locking_child(fd, LOCK_EX));
    DO(flock(other, LOCK_EX | LOCK_NB));
    int until[2];
    pipe(until);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        char byte;
        close(until[1]);
        read(until[0], &byte, 1);
        _exit(0);
    }
    close(fd);
    DO(flock(other, LOCK_EX | LOCK_NB));
    close(until[1]);
    close(until[0]);
    wait_for(child);
    DO(flock(other, LOCK_EX | LOCK_NB));
    close(other);
}

static void waiting(void) {
    SECTION("waiting");
    int fd = open("file", O_RDWR), pipes[2];
    pipe(pipes);
    struct pollfd list[2] = {{fd, POLLIN | POLLOUT, 0}, {pipes[0], POLLIN, 0}};
    DO(poll(list, 2, 5000));
    printf("%x %x\n", list[0].revents, list[1].revents);
    DO(write(pipes[1], "x", 1));
    DO(poll(list, 2, 5000));
    printf("%x %x\n", list[0].revents, list[1].revents);
    list[1].fd = -1;
    DO(poll(list, 2, 5000));
    printf("%x %x\n", list[0].revents, list[1].revents);
    char taken;
    DO(read(pipes[0], &taken, 1));
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(fd, &reads);
    FD_SET(pipes[0], &reads);
    DO(select(64, &reads, NULL, NULL, NULL));
    printf("%d %d\n", FD_ISSET(fd, &reads) != 0, FD_ISSET(pipes[0], &reads) != 0);
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
}

struct work {
    int fd, number, wrong;
};

static void *work_on(void *argument) {
    struct work *work = argument;
    char out[1000], in[1000], name[32];
    for (int round = 0; round < 50; round++) {
        memset(out, work->number * 16 + round % 16, sizeof out);
        off_t offset = (work->number * 50 + round) * 1000L;
        work->wrong += pwrite(work->fd, out, sizeof out, offset) != 1000;
        work->wrong += pread(work->fd, in, sizeof in, offset) != 1000 || memcmp(in, out, 1000);
        snprintf(name, sizeof name, "thread-%d", work->number);
        int fd = open(name, O_RDWR | O_CREAT, 0644);
        work->wrong += fd < 0 || write(fd, name, 8) != 8 || close(fd) || unlink(name);
    }
    return NULL;
}

static void threads(void) {
    SECTION("threads");
    int fd = open("by-threads", O_RDWR | O_CREAT | O_TRUNC, 0644);
    pthread_t threads[8];
    struct work works[8];
    for (int number = 0; number < 8; number++) {
        works[number] = (struct work){fd, number, 0};
        pthread_create(&threads[number], NULL, work_on, &works[number]);
    }
    for (int number = 0; number < 8; number++) {
        pthread_join(threads[number], NULL);
        printf("thread %d: %d wrong\n", number, works[number].wrong);
    }
    DO(lseek(fd, 0, SEEK_END));
    DO(lseek(fd, 0, SEEK_SET));
    close(fd);
}

static volatile int is_over;

static void *ask_where(void *unused) {
    char where[4096];
    while (!is_over)
        getcwd(where, sizeof where);
    return NULL;
}

/* A child finds nothing locked that another thread of its parent was using. */
static void forks(void) {
    SECTION("forks beside threads");
    pthread_t threads[4];
    int wrong = 0, status;
    for (int number = 0; number < 4; number++)
        pthread_create(&threads[number], NULL, ask_where, NULL);
    for (int fork_ = 0; fork_ < 300 && !wrong; fork_++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            _exit(chdir("/") != 0);
        }
        wrong += waitpid(child, &status, 0) != child || status != 0;
    }
    is_over = 1;
    for (int number = 0; number < 4; number++)
        pthread_join(threads[number], NULL);
    printf("%d wrong\n", wrong);
}

int main(int count, char **arguments) {
    if (count == 3)
        return read_inherited(atoi(arguments[2]));
    umask(022);
    DO(chdir(arguments[1]));
    opening();
    opening_without_room();
    data();
    appending();
    sharing(arguments[0]);
    directories();
    names();
    attributes();
    streams();
    memory();
    locks();
    waiting();
    threads();
    forks();
    return 0;
}
