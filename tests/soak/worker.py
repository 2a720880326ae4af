#!/usr/bin/env python3
"""One process of the soak test: `worker.py KIND ROOT LOG UNTIL SEED ARGUMENT...`. ROOT is a mount, or the preload library's prefix.

It works until UNTIL (of the monotonic clock), and notes each call in LOG as soon as it was answered. What it finds wrong by itself it prints as
`finding WHAT: DETAIL`. At the end it prints a line of JSON: its calls, its errors, and how long the slowest call took.
"""

import errno
import json
import os
import random
import sys
import time
import traceback

from records import CELL, Log, read_at, record

PAUSE = 0.01  # seconds at most between calls: others have the processor, too
READ = 1 << 20


def place_of(error):
    """The line that failed: which call of several it was."""
    return traceback.extract_tb(error.__traceback__)[-1].line


class Worker:
    def __init__(self, root, log, until, seed):
        self.root = root
        self.log = Log(log)
        self.until = until
        self.random = random.Random(seed)
        self.calls = 0
        self.slowest = 0.0
        self.errors = {}

    def path(self, name):
        return os.path.join(self.root, name)

    def goes_on(self):
        time.sleep(self.random.random() * PAUSE)
        return time.monotonic() < self.until

    def enter(self):
        """Waits until the files are there: a program of the preload library that meets a forwarder that is gone before it
        has met any gets an error at once."""
        for _ in range(600):
            try:
                return os.stat(self.root)
            except (ConnectionRefusedError, FileNotFoundError):
                time.sleep(0.1)
        return None

    def finding(self, what, detail):
        print(f"finding {what}: {detail}", flush=True)

    def call(self, number, function, detail=0, allowed=()):
        """Makes a call, and notes it. Returns what it returned, or None if it failed."""
        begin = time.monotonic()
        result, what = None, "ok"
        try:
            result = function()
            result = True if result is None else result
        except OSError as error:
            what = errno.errorcode.get(error.errno, str(error.errno))
            if error.errno not in allowed:
                self.errors[what] = self.errors.get(what, 0) + 1
                took = time.monotonic() - begin
                place = f"{place_of(error)} {error.filename or ''}"
                self.finding("a call failed", f"{what} after {took:.1f} s: call {number}, {place}")
        end = time.monotonic()
        self.calls += 1
        self.slowest = max(self.slowest, end - begin)
        self.log.add(what, number, begin, end, detail)
        return result

    def open(self, name, flags):
        """Opens a file, and tries again if that fails: without it there is nothing to do."""
        while time.monotonic() < self.until:
            fd = self.call(-1, lambda: os.open(self.path(name), flags, 0o644))
            if fd is not None:
                return fd
            time.sleep(0.1)
        sys.exit(0)

    def append(self, name, writer):
        fd = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        number = 0
        while self.goes_on():
            size = 64 if self.random.random() < 0.5 else int(64 * 1024 ** self.random.random())
            data = record(int(writer), number, size)

            def write(data=data):
                if os.write(fd, data) != len(data):
                    self.finding("a write was short", f"record {number} of writer {writer}")
                    raise OSError(errno.EIO, "short")

            self.call(number, write)
            if self.random.random() < 0.05:
                self.call(-1, lambda: os.fsync(fd))
            number += 1

    def truncate(self, name):
        number = 0
        while self.goes_on():
            time.sleep(self.random.uniform(0.2, 1.5))
            self.call(number, lambda: os.truncate(self.path(name), 0), allowed=(errno.ENOENT,))
            number += 1

    def replace(self, name):
        number = 0
        while self.goes_on():
            size = self.random.randint(100_000, 1_000_000)
            data = record(1, number, size)

            def replace(data=data):
                fd = os.open(self.path(name + ".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                try:
                    rest = memoryview(data)
                    while rest:
                        rest = rest[os.write(fd, rest[:READ]) :]
                    if self.random.random() < 0.5:
                        os.fsync(fd)
                finally:
                    os.close(fd)
                os.rename(self.path(name + ".new"), self.path(name))

            self.call(number, replace)
            number += 1
            time.sleep(self.random.random() * 0.2)

    def read(self, name):
        number = 0
        while self.goes_on():
            stale = (errno.ESTALE,)
            absent = (errno.ENOENT,) if number == 0 else ()
            fd = self.call(number, lambda: os.open(self.path(name), os.O_RDONLY), allowed=stale + absent)
            if fd is None:
                continue
            pieces = []
            while True:
                piece = self.call(
                    number, lambda: os.read(fd, self.random.randint(1000, 300_000)), allowed=stale
                )
                if not piece:
                    break
                pieces.append(piece)
                if self.random.random() < 0.3:
                    time.sleep(self.random.random() * 0.1)
            os.close(fd)
            data = b"".join(pieces)
            here = read_at(data, 0)
            if piece is not None and (here is None or here[2] != len(data)):
                self.finding(
                    "a replaced file is not whole", f"{here}: {len(data)} bytes, {data.count(0)} of them 0"
                )
            number += 1

    def cells(self, name, writer, writers, count):
        writer, writers, count = int(writer), int(writers), int(count)
        fd = self.open(name, os.O_RDWR | os.O_CREAT)
        number = 0
        while self.goes_on():
            cell = self.random.randrange(count) // writers * writers + writer
            data = record(writer, number, CELL)
            wrote = self.call(number, lambda data=data, cell=cell: os.pwrite(fd, data, cell * CELL), cell)
            if wrote and self.random.random() < 0.2:
                back = self.call(-1, lambda cell=cell: os.pread(fd, CELL, cell * CELL), -1)
                if back is not None and back != data:
                    self.finding(
                        "a write cannot be read back",
                        f"cell {cell}: {read_at(back, 0)}, not {number} of {writer}",
                    )
            if self.random.random() < 0.1:
                self.call(-1, lambda: os.fsync(fd), -1)
            number += 1

    def churn(self, name, state):
        """Makes, renames and removes small files, and leaves in `state` which there must be."""
        folder = self.path(name)
        while self.call(-1, lambda: os.makedirs(folder, exist_ok=True)) is None and self.goes_on():
            pass
        files, unknown, number = {}, set(), 0

        def make(path, content):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                os.write(fd, content)
            finally:
                os.close(fd)

        def load(path):
            with open(path, "rb", buffering=0) as file:
                return file.read()

        def do(names, function):
            if self.call(number, function) is not None:
                return True
            # It may have happened, or not.
            for one in names:
                files.pop(one, None)
                unknown.add(one)
            return False

        while self.goes_on():
            at = lambda one: os.path.join(folder, one)  # noqa: E731
            number += 1
            draw = self.random.random()
            old = self.random.choice(sorted(files)) if files else None
            new = f"file-{number}"
            if old is None or (draw < 0.35 and len(files) < 50):
                size = self.random.choice([20, 100, 4096, 70_000])
                if do([new], lambda: make(at(new), record(0, number, size))):
                    files[new] = (number, size)
            elif draw < 0.6:
                over = self.random.choice(sorted(files)) if self.random.random() < 0.3 else new
                if over != old and do([old, over], lambda: os.rename(at(old), at(over))):
                    files[over] = files.pop(old)
            elif draw < 0.8:
                if do([old], lambda: os.unlink(at(old))):
                    del files[old]
            else:
                content = self.call(number, lambda: load(at(old)))
                if content is not None and content != record(0, *files[old]):
                    self.finding(
                        "a small file is not what it was", f"{old}: {len(content)} bytes, not {files[old]}"
                    )
        with open(state, "w", encoding="ascii") as file:
            json.dump({"files": files, "unknown": sorted(unknown)}, file)

    def copy(self, name, to):
        """Copies a file, or a folder's files, to this machine's own disk, for the check."""

        def copy(source, target):
            with open(source, "rb", buffering=0) as file, open(target, "wb") as out:
                while piece := file.read(READ):
                    out.write(piece)

        def copy_all():
            if not os.path.isdir(self.path(name)):
                return copy(self.path(name), to + ".part")
            os.mkdir(to + ".part")
            for one in os.listdir(self.path(name)):
                copy(os.path.join(self.path(name), one), os.path.join(to + ".part", one))

        if self.call(0, copy_all):
            os.rename(to + ".part", to)


def main():
    kind, root, log, until, seed, *arguments = sys.argv[1:]
    worker = Worker(root, log, float(until), seed)
    try:
        worker.enter()
        getattr(worker, kind)(*arguments)
    finally:
        print(
            json.dumps({"calls": worker.calls, "errors": worker.errors, "slowest": worker.slowest}),
            flush=True,
        )


main()
