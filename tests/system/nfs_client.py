"""What the system test of NFS does through libnfs, a client of others: trees in and out, names, permissions, many clients, a killed server."""

import ctypes
import ctypes.util
import os
import socket
import stat
import struct
import sys
import threading
import time

LIBRARY = ctypes.CDLL(ctypes.util.find_library("nfs"))
LIBRARY.nfs_init_context.restype = ctypes.c_void_p
LIBRARY.nfs_parse_url_dir.restype = ctypes.c_void_p
LIBRARY.nfs_get_error.restype = ctypes.c_char_p
LIBRARY.nfs_readdir.restype = ctypes.c_void_p


class Stat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks",
        "atime", "mtime", "ctime", "atime_nsec", "mtime_nsec", "ctime_nsec", "used")]


class Entry(ctypes.Structure):
    _fields_ = [("next", ctypes.c_void_p), ("name", ctypes.c_char_p), ("inode", ctypes.c_uint64), ("type", ctypes.c_uint32)]


class Url(ctypes.Structure):
    _fields_ = [("server", ctypes.c_char_p), ("path", ctypes.c_char_p), ("file", ctypes.c_char_p)]


class Mount:
    """The export, mounted by a context of its own."""

    def __init__(self, url):
        self.context = ctypes.c_void_p(LIBRARY.nfs_init_context())
        parsed = LIBRARY.nfs_parse_url_dir(self.context, (url[0] + url[1]).encode())
        if not parsed:
            raise OSError(self.said())
        server = ctypes.cast(parsed, ctypes.POINTER(Url)).contents
        self.check("mount", LIBRARY.nfs_mount(self.context, server.server, server.path))

    def said(self):
        return (LIBRARY.nfs_get_error(self.context) or b"").decode()

    def check(self, what, result):
        if result < 0:
            raise OSError(-result, f"{what}: {os.strerror(-result)} ({self.said()})")
        return result

    def call(self, name, *arguments):
        given = [one.encode() if isinstance(one, str) else one for one in arguments]
        return self.check(name, getattr(LIBRARY, "nfs_" + name)(self.context, *given))

    def open(self, path, flags):
        file = ctypes.c_void_p()
        if flags & os.O_CREAT:
            self.call("create", path, flags, 0o644, ctypes.byref(file))
        else:
            self.call("open", path, flags, ctypes.byref(file))
        return file

    def write(self, file, offset, data):
        done = 0
        while done < len(data):
            piece = data[done:done + (1 << 20)]
            done += self.call("pwrite", file, ctypes.c_uint64(offset + done), ctypes.c_uint64(len(piece)), piece)

    def put(self, path, data, mode=0o644):
        file = self.open(path, os.O_CREAT | os.O_RDWR)
        self.write(file, 0, data)
        self.call("fsync", file)
        self.call("close", file)
        self.call("chmod", path, mode)

    def get(self, path):
        file = self.open(path, os.O_RDONLY)
        data, offset = [], 0
        room = ctypes.create_string_buffer(1 << 20)
        while count := self.call("pread", file, ctypes.c_uint64(offset), ctypes.c_uint64(len(room)), room):
            data.append(room.raw[:count])
            offset += count
        self.call("close", file)
        return b"".join(data)

    def stat(self, path):
        found = Stat()
        self.call("lstat64", path, ctypes.byref(found))
        return found

    def names(self, path):
        listed = ctypes.c_void_p()
        self.call("opendir", path, ctypes.byref(listed))
        names = []
        while entry := LIBRARY.nfs_readdir(self.context, listed):
            name = ctypes.cast(entry, ctypes.POINTER(Entry)).contents.name.decode()
            if name not in (".", ".."):
                names.append(name)
        LIBRARY.nfs_closedir(self.context, listed)
        return sorted(names)

    def link_target(self, path):
        room = ctypes.create_string_buffer(4096)
        self.call("readlink", path, room, len(room))
        return room.value.decode()


def fails(number, what, *arguments):
    try:
        what(*arguments)
    except OSError as error:
        assert error.errno == number, f"expected errno {number}: {error}"
    else:
        raise AssertionError(f"expected errno {number}, and it worked")


def copy_in(mount, source):
    for folder, folders, files in os.walk(source):
        below = "/in" + folder[len(source):]
        mount.call("mkdir", below)
        for name in folders + files:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                mount.call("symlink", os.readlink(path), f"{below}/{name}")
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    mount.put(f"{below}/{name}", file.read(), os.stat(path).st_mode & 0o777)


def copy_out(mount, path, target):
    os.mkdir(target)
    for name in mount.names(path):
        found, to = mount.stat(f"{path}/{name}"), os.path.join(target, name)
        if stat.S_ISLNK(found.mode):
            os.symlink(mount.link_target(f"{path}/{name}"), to)
        elif stat.S_ISDIR(found.mode):
            copy_out(mount, f"{path}/{name}", to)
        else:
            with open(to, "wb") as file:
                file.write(mount.get(f"{path}/{name}"))
            os.chmod(to, found.mode & 0o777)


def names(url):
    mount = Mount(url)
    mount.call("mkdir", "/names")
    mount.put("/names/a", b"content of a")
    mount.put("/names/b", b"content of b")
    mount.call("rename", "/names/a", "/names/c")
    fails(2, mount.get, "/names/a")
    assert mount.get("/names/c") == b"content of a"
    mount.call("rename", "/names/c", "/names/b")
    assert mount.names("/names") == ["b"] and mount.get("/names/b") == b"content of a"
    mount.call("link", "/names/b", "/names/d")
    assert mount.stat("/names/d").nlink == 2
    mount.call("truncate", "/names/b", ctypes.c_uint64(7))
    assert mount.get("/names/d") == b"content"
    fails(39, mount.call, "rmdir", "/names")
    mount.call("unlink", "/names/b")
    mount.call("unlink", "/names/d")
    mount.call("rmdir", "/names")
    fails(2, mount.stat, "/names")


def permissions(url, other):
    """Another user of the client reads only what it may."""
    mount = Mount(url)
    mount.put("/secret", b"root's own", 0o600)
    mount.put("/open", b"everybody's", 0o644)
    mount.call("mkdir", "/theirs")
    mount.call("chown", "/theirs", 1000, 1000)
    user = Mount((url[0], url[1] + other))
    fails(13, user.get, "/secret")
    assert user.get("/open") == b"everybody's"
    fails(13, user.open, "/open", os.O_RDWR)
    fails(13, user.put, "/new", b"x")
    user.put("/theirs/new", b"mine", 0o400)
    found = mount.stat("/theirs/new")
    assert (found.uid, found.gid, found.mode & 0o777) == (1000, 1000, 0o400), (found.uid, found.gid, found.mode)
    fails(1, user.call, "chown", "/theirs/new", 0, 0)
    user.call("unlink", "/theirs/new")


def crowd(url, count):
    """So many clients at once, each with its own connection and files."""
    failed = []

    def one(number):
        try:
            mount = Mount(url)
            data = os.urandom(100_000)
            for round_ in range(3):
                mount.put(f"/crowd-{number}", data)
                assert mount.get(f"/crowd-{number}") == data
                mount.call("rename", f"/crowd-{number}", f"/crowd-{number}-{round_}")
                mount.call("unlink", f"/crowd-{number}-{round_}")
        except BaseException as error:  # noqa: BLE001 - a thread's error is the test's
            failed.append(f"client {number}: {error!r}")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[:3]


def through(url, progress, goes_on):
    """Writes on through the end of its server, which comes back; says so when something is committed. What was written is all there."""
    mount = Mount(url)
    file = mount.open("/through", os.O_CREAT | os.O_RDWR)
    data = os.urandom(64 << 10)
    block = 0
    while not os.path.exists(goes_on) or block % 16:
        mount.write(file, block * len(data), block.to_bytes(8, "big") + data[8:])
        block += 1
        if block % 16 == 0:
            mount.call("fsync", file)
            with open(progress, "w", encoding="ascii") as noted:
                noted.write(str(block))
        time.sleep(0.002)
    mount.call("close", file)
    found = mount.get("/through")
    assert len(found) == block * len(data), (len(found), block)
    for number in range(block):
        at = number * len(data)
        assert found[at:at + len(data)] == number.to_bytes(8, "big") + data[8:], f"block {number}"
    print(f"{block} blocks")


def packed(data):
    """Bytes as XDR has them."""
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def again(url, kept):
    """Calls that must not be carried out twice. The second time, at another server perhaps, the same are sent and have the same answers."""
    path, port = url[0].removeprefix("nfs://127.0.0.1"), int(url[1].split("nfsport=")[1].split("&")[0])
    server = socket.socket()
    for own in range(1023, 600, -1):
        try:
            server.bind(("127.0.0.1", own))
            break
        except OSError:
            continue
    server.connect(("127.0.0.1", port))
    stream = server.makefile("rb")

    def ask(xid, program, procedure, arguments):
        credential = packed(struct.pack(">IIIII", 0, 0, 0, 0, 0))
        call = struct.pack(">IIIIIII", xid, 0, 2, program, 3, procedure, 1) + credential + struct.pack(">II", 0, 0) + arguments
        server.sendall(struct.pack(">I", len(call) | 1 << 31) + call)
        answer = stream.read(struct.unpack(">I", stream.read(4))[0] & 0x7FFFFFFF)
        assert struct.unpack(">IIIIII", answer[:24]) == (xid, 1, 0, 0, 0, 0), answer
        return answer[24:]

    mounted = ask(1, 100005, 1, packed(path.encode()))
    root = packed(mounted[8:8 + struct.unpack(">I", mounted[4:8])[0]])
    keep = struct.pack(">IIIIII", 0, 0, 0, 0, 0, 0)
    one, two, three = (root + packed(name) for name in (b"again", b"moved", b"second"))
    calls = [(9, one + keep), (14, one + two), (9, three + keep), (13, two), (13, three)]
    answers = [ask(77000 + at, 100003, *call) for at, call in enumerate(calls)]
    assert all(answer[:4] == bytes(4) for answer in answers), answers
    # Another number is another call.
    assert ask(os.getpid() << 8, 100003, 13, two)[:4] == struct.pack(">I", 2)
    text = "\n".join(answer.hex() for answer in answers)
    if os.path.exists(kept):
        with open(kept, encoding="ascii") as noted:
            assert noted.read() == text, "other answers"
    else:
        with open(kept, "w", encoding="ascii") as noted:
            noted.write(text)


def main():
    what, *given = sys.argv[1:]
    url = (given[0], given[1])
    if what == "in":
        copy_in(Mount(url), given[2])
    elif what == "out":
        copy_out(Mount(url), "/in", given[2])
    elif what == "crowd":
        crowd(url, int(given[2]))
    else:
        {"names": names, "permissions": permissions, "through": through, "again": again}[what](url, *given[2:])


main()
