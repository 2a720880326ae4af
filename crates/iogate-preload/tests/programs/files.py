"""Python's ways to files in a directory, which is empty: the same is to be said wherever it is."""

import contextlib
import errno
import fcntl
import glob
import io
import mmap
import multiprocessing
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
os.umask(0o022)


def square(number):
    (root / f"square-{number}").write_text(str(number * number))
    return os.path.getsize(root / "text") + number


def failing(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        print(call.__name__, errno.errorcode[error.errno])
    else:
        print(call.__name__, "succeeds")


def main():
    path = root / "text"
    with open(path, "w") as file:
        print(file.write("first\nsecond\nthird\n"), file.tell())
    with open(path, "r+") as file:
        print(file.readline(), file.seek(0, io.SEEK_END), file.write("fourth\n"), file.truncate(20))
    with open(path, "ab") as file:
        print(file.write(b"fifth\n"), file.tell())
    print(path.read_bytes(), path.stat().st_size, oct(path.stat().st_mode), path.exists(), path.is_dir())
    with open(path, "rb", buffering=0) as file:
        print(file.readinto(bytearray(5)), os.lseek(file.fileno(), 0, os.SEEK_CUR), file.isatty(), file.seekable())
        print(os.pread(file.fileno(), 6, 6), os.fstat(file.fileno()).st_size)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        print(memory[:5], memory.find(b"second"), len(memory))
    try:
        open(path, "x")
    except FileExistsError:
        print("exists")
    failing(os.mkdir, root)
    failing(os.rmdir, root / "text")
    failing(os.listdir, root / "text")
    failing(os.stat, root / "missing")
    failing(os.readlink, path)
    failing(os.rename, root / "missing", root / "other")

    (root / "a" / "b").mkdir(parents=True)
    shutil.copy(path, root / "a" / "copy")
    shutil.copytree(root / "a", root / "c")
    shutil.move(root / "c" / "copy", root / "moved")
    os.symlink("moved", root / "link")
    print(sorted(os.listdir(root)), os.readlink(root / "link"), (root / "link").read_text() == path.read_text())
    print(sorted((entry.name, entry.is_dir(), entry.is_symlink()) for entry in os.scandir(root)))
    print([(os.path.relpath(top, root), sorted(dirs), sorted(files)) for top, dirs, files in os.walk(root)][0])
    print(sorted(os.path.relpath(found, root) for found in glob.glob(f"{root}/**", recursive=True)))
    print(os.path.relpath(os.path.realpath(root / "link"), os.path.realpath(root)))
    os.utime(path, (10, 20))
    os.chmod(path, 0o600)
    print(path.stat().st_mtime, oct(path.stat().st_mode))
    with contextlib.suppress(OSError):
        os.setxattr(path, "user.key", b"value")
        print(os.getxattr(path, "user.key"), os.listxattr(path))
    with tempfile.NamedTemporaryFile(dir=root) as file:
        file.write(b"temporary")
        file.flush()
        print(os.path.getsize(file.name))
    with tempfile.TemporaryFile(dir=root) as file:
        file.write(b"nameless")
        file.seek(0)
        print(file.read())

    with open(root / "output", "wb") as out:
        subprocess.run(["sh", "-c", "echo shell; cat"], stdin=open(path, "rb"), stdout=out, check=True)
    print((root / "output").read_bytes())
    print(subprocess.run(["cat", "text"], cwd=root, stdout=subprocess.PIPE, check=True).stdout)
    script = "import sys; print(sys.stdin.read().upper(), end='')"
    with open(root / "output", "ab") as out, open(path) as source:
        subprocess.run([sys.executable, "-c", script], stdin=source, stdout=out, check=True)
    print((root / "output").read_bytes())
    here = os.getcwd()
    os.chdir(root / "a")
    print(os.path.relpath(os.getcwd(), root), sorted(os.listdir("..")) == sorted(os.listdir(root)), os.path.exists("copy"))
    print(subprocess.run(["ls"], stdout=subprocess.PIPE, check=True).stdout)
    os.chdir(here)
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(3) as pool:
            print(pool.map(square, range(6)))
        print([(root / f"square-{number}").read_text() for number in range(6)])
    read, write = os.pipe()
    with open(path, "rb") as file:
        child = os.fork()
        if child == 0:
            os.write(write, os.read(file.fileno(), 6))
            os._exit(0)
        os.waitpid(child, 0)
        print(os.read(read, 10), os.read(file.fileno(), 6))
    with open(root / "locked", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("locked")

    with sqlite3.connect(root / "data.sqlite") as database:
        database.execute("create table numbers (n integer primary key, word text)")
        database.executemany("insert into numbers values (?, ?)", ((n, f"word {n}" * 10) for n in range(2000)))
    with sqlite3.connect(root / "data.sqlite") as database:
        print(database.execute("select count(*), max(word), sum(n) from numbers").fetchall())
        print(database.execute("pragma integrity_check").fetchall())
        database.execute("delete from numbers where n % 2")
    database.close()
    os.unlink(root / "data.sqlite")

    shutil.rmtree(root / "a")
    for name in sorted(os.listdir(root)):
        found = root / name
        shutil.rmtree(found) if found.is_dir() else found.unlink()
    print(os.listdir(root))


if __name__ == "__main__":
    main()
