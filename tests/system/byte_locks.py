"""Locks of bytes of a file that is there under two names: between a process and its children, by whichever name."""

import errno, fcntl, os, struct, sys, time

one, other = (os.open(path, os.O_RDWR) for path in sys.argv[1:])

def lock(fd, kind, first, count, wait=False):
    # struct flock of 64-bit Linux.
    asked = struct.pack("hhqqi4x", kind, os.SEEK_SET, first, count, 0)
    return fcntl.fcntl(fd, fcntl.F_SETLKW if wait else fcntl.F_SETLK, asked)

def refused(*args):
    try:
        lock(*args)
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EACCES), error
        return True
    return False

lock(one, fcntl.F_WRLCK, 0, 100)
# A child is another owner, on whichever mount.
def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return pid

def joined(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def looks():
    for fd in (one, other):
        assert refused(fd, fcntl.F_RDLCK, 99, 1)
        found = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 50, 200, 0)))
        assert found[0] == fcntl.F_WRLCK and (found[2], found[3]) == (0, 100), found
        lock(fd, fcntl.F_WRLCK, 100, 10)
        lock(fd, fcntl.F_UNLCK, 100, 10)
joined(child(looks))
# The middle is given back; what is left is two.
lock(one, fcntl.F_UNLCK, 40, 20)
def middle():
    lock(other, fcntl.F_WRLCK, 40, 20)
    assert refused(other, fcntl.F_WRLCK, 39, 1) and refused(other, fcntl.F_WRLCK, 60, 1)
joined(child(middle))
# Closing any descriptor of the file gives all back.
waiting = child(lambda: lock(other, fcntl.F_WRLCK, 0, 10, True))
time.sleep(0.3)
assert os.waitpid(waiting, os.WNOHANG) == (0, 0)
os.close(os.open(sys.argv[1], os.O_RDONLY))
joined(waiting)

# A counter that several processes on both mounts read, change and write.
path = sys.argv[1] + ".count"
open(path, "w").write("0".ljust(20))
def count(path):
    fd = os.open(path, os.O_RDWR)
    for _ in range(40):
        lock(fd, fcntl.F_WRLCK, 0, 0, True)
        number = int(os.pread(fd, 20, 0))
        os.pwrite(fd, str(number + 1).ljust(20).encode(), 0)
        lock(fd, fcntl.F_UNLCK, 0, 0)
for counting in [child(lambda path=path: count(path)) for path in [path, sys.argv[2] + ".count"] * 2]:
    joined(counting)
assert int(open(path).read()) == 160, open(path).read()
