"""What docs/semantics.md promises, tried on two mounts of the same files (two nodes), or on one mount given twice.

    promises.py WAY NODE NODE [NOT...]     the second node may be the first; NOT are names of promises that this way does not make

Each function is a promise, in the page's words. All are tried, and those that do not hold are told.
"""

import ctypes
import errno
import fcntl
import mmap
import multiprocessing
import os
import sys
import time
from pathlib import Path

MIB = 1 << 20
libc = ctypes.CDLL(None, use_errno=True)


def eventually(holds, seconds=30):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def append_records(path, writer, count):
    """Appends lines, of many lengths, that say who wrote them, their number, and their length."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for number in range(count):
        text = f"{writer} {number} ".encode()
        line = text + b"x" * ((number * 97) % 3000) + b"\n"
        assert os.write(file, line) == len(line)
    os.fsync(file)
    os.close(file)


def who_writes_sees_its_own_sizes_and_times_at_once(one, two):
    for number in range(4):
        file = os.open(one / f"own-{number}", os.O_RDWR | os.O_CREAT, 0o600)
        os.write(file, bytes(1_000_000))
        os.fchmod(file, 0o640)
        assert os.fstat(file).st_size == 1_000_000, os.fstat(file).st_size
        os.utime(file, (1000, 2000))
        assert (os.fstat(file).st_mtime, os.fstat(file).st_size) == (2000, 1_000_000)
        os.close(file)
        assert eventually(lambda: (two / f"own-{number}").stat().st_mtime == 2000)


def records_of_several_writers_are_whole_once_and_in_their_writers_order(one, two):
    path, count = "records", 150
    writers = [multiprocessing.Process(target=append_records, args=(node / path, name, count))
               for name, node in enumerate([one, two, one, two])]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    found = {}
    for line in (one / path).read_bytes().splitlines():
        writer, number, rest = line.split(b" ", 2)
        assert rest == b"x" * ((int(number) * 97) % 3000), f"a torn record: {line[:60]!r}"
        found.setdefault(writer, []).append(int(number))
    assert sorted(found) == [b"0", b"1", b"2", b"3"]
    for writer, numbers in found.items():
        assert numbers == list(range(count)), f"the records of {writer} are not once and in order: {numbers[:20]}"


def a_record_after_a_truncation_is_at_the_beginning(one, two):
    file = os.open(one / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, b"before the truncation\n")
    os.truncate(two / "log", 0)
    os.write(file, b"after\n")
    os.close(file)
    assert (one / "log").read_bytes() == b"after\n"


def a_large_append_is_there_once_in_its_order(one, two):
    data = b"".join(bytes([65 + part]) * MIB for part in range(3))
    file = os.open(one / "large", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    assert os.write(file, data) == len(data)
    os.close(file)
    assert (two / "large").read_bytes() == data


def large_appends_of_several_writers_are_in_pieces_each_whole_and_in_order(one, two):
    def append(node, writer):
        file = os.open(node / "pieces", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        # Whole pages: the kernel makes pieces of them.
        with mmap.mmap(-1, 3 * MIB) as memory:
            for number in range(0, 6, 3):
                for part in range(3):
                    memory[part * MIB:(part + 1) * MIB] = bytes([writer + number + part]) * MIB
                assert os.write(file, memory) == 3 * MIB

    writers = [multiprocessing.Process(target=append, args=made) for made in ((one, 100), (two, 200))]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
        assert process.exitcode == 0
    data = (one / "pieces").read_bytes()
    pieces = [data[at:at + MIB] for at in range(0, len(data), MIB)]
    assert all(piece == piece[:1] * MIB for piece in pieces), "a piece is torn"
    for writer in 100, 200:
        own = [piece[0] - writer for piece in pieces if 0 <= piece[0] - writer < 6]
        assert own == list(range(6)), f"the pieces of {writer} are not once and in order: {own}"


def a_read_after_an_answered_write_sees_it_on_every_node(one, two):
    (one / "data").write_bytes(bytes(9000))
    writer, reader = os.open(one / "data", os.O_RDWR), os.open(two / "data", os.O_RDONLY)
    for number in range(200):
        mark = number.to_bytes(4, "little")
        offset = (number * 37) % 8000
        os.pwrite(writer, mark, offset)
        assert os.pread(reader, 4, offset) == mark, f"write {number} is not seen"
    os.close(writer)
    os.close(reader)


def what_was_written_is_seen_when_a_file_is_opened_anew(one, two):
    for number in range(20):
        text = f"version {number}".encode()
        (one / "versions").write_bytes(text)
        assert (two / "versions").read_bytes() == text


def sizes_and_names_are_seen_soon(one, two):
    (one / "grows").write_bytes(b"1")
    assert eventually(lambda: (two / "grows").exists())
    with open(one / "grows", "ab") as file:
        file.write(b"23456")
    assert eventually(lambda: (two / "grows").stat().st_size == 6)
    os.chmod(one / "grows", 0o600)
    assert eventually(lambda: (two / "grows").stat().st_mode & 0o777 == 0o600)
    os.rename(one / "grows", one / "grown")
    assert eventually(lambda: (two / "grown").exists() and not (two / "grows").exists())


def or_stale(call):
    """What a call returns; `None` if it fails with ESTALE."""
    try:
        return call()
    except OSError as error:
        assert error.errno == errno.ESTALE, error
        return None


def a_removed_file_stays_or_is_stale(one, two):
    data = os.urandom(300_000)
    (one / "removed").write_bytes(data)
    file = os.open(one / "removed", os.O_RDWR)
    os.unlink(two / "removed")
    found = or_stale(lambda: os.pread(file, len(data) + 1, 0))
    assert found in (None, data), "neither the data nor ESTALE"
    if or_stale(lambda: os.pwrite(file, b"still", 10)) is not None:
        assert os.pread(file, 5, 10) == b"still"
    os.close(file)
    (one / "removed").write_bytes(b"again")
    os.unlink(two / "removed")
    (one / "removed").write_bytes(b"and again")


def a_replaced_file_stays_or_is_stale(one, two):
    old, new = os.urandom(200_000), os.urandom(100_000)
    # The replacement gets the number of a file that was known before, where the file system uses numbers again.
    (one / "replaced").write_bytes(old)
    file = os.open(one / "replaced", os.O_RDONLY)
    (one / "removed").write_bytes(old)
    os.unlink(two / "removed")
    (two / "replacement").write_bytes(new)
    os.rename(two / "replacement", two / "replaced")
    found = or_stale(lambda: os.pread(file, len(old) + 1, 0))
    assert found in (None, old), "neither the old data nor ESTALE"
    os.close(file)
    assert eventually(lambda: (one / "replaced").read_bytes() == new)


def changing_an_open_file_never_changes_another_that_has_got_its_name(one, two):
    (one / "name").write_bytes(b"old")
    file = os.open(one / "name", os.O_RDWR)
    (two / "other").write_bytes(b"new")
    os.chmod(two / "other", 0o640)
    os.rename(two / "other", two / "name")
    or_stale(lambda: os.fchmod(file, 0o777))
    or_stale(lambda: os.setxattr(file, "user.color", b"red"))
    or_stale(lambda: os.fchown(file, 1, 1))
    or_stale(lambda: os.ftruncate(file, 1))
    os.close(file)
    assert eventually(lambda: (two / "name").stat().st_size == 3)
    found = (two / "name").stat()
    assert (found.st_mode & 0o777, found.st_uid, os.listxattr(two / "name")) == (0o640, os.getuid(), [])


def renames_are_atomic(one, two):
    (one / "target").write_bytes(b"0" * 100)
    stop = multiprocessing.Event()

    def rename():
        number = 0
        while not stop.is_set():
            (one / "next").write_bytes(str(number % 10).encode() * 100)
            os.rename(one / "next", one / "target")
            number += 1

    renamer = multiprocessing.Process(target=rename)
    renamer.start()
    try:
        for _ in range(100):
            found = or_stale(lambda: (two / "target").read_bytes())
            assert found is None or (len(found) == 100 and len(set(found)) == 1), f"not one of its files: {found!r}"
    finally:
        stop.set()
        renamer.join()


def locked_elsewhere(path, lock):
    """Whether another process finds a file locked."""
    def attempt():
        with open(path, "r+b") as file:
            try:
                lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                sys.exit(1)
        sys.exit(0)

    other = multiprocessing.Process(target=attempt)
    other.start()
    other.join()
    return other.exitcode == 1


def locks_hold_between_the_processes_of_one_mount(one, two):
    (one / "locked").write_bytes(b"")
    for lock in fcntl.lockf, fcntl.flock:
        with open(one / "locked", "r+b") as file:
            lock(file, fcntl.LOCK_EX)
            assert locked_elsewhere(one / "locked", lock)


def locks_hold_between_all_mounts_of_a_server(one, two):
    (one / "locked").write_bytes(b"")
    for lock in fcntl.lockf, fcntl.flock:
        with open(one / "locked", "r+b") as file:
            lock(file, fcntl.LOCK_EX)
            assert locked_elsewhere(two / "locked", lock)
        assert eventually(lambda: not locked_elsewhere(two / "locked", lock))


def collapsing_and_inserting_ranges_is_refused(one, two):
    (one / "ranges").write_bytes(bytes(3 * MIB))
    file = os.open(one / "ranges", os.O_RDWR)
    for mode in 0x08, 0x20:
        assert libc.fallocate(file, mode, ctypes.c_long(MIB), ctypes.c_long(MIB)) == -1
        assert ctypes.get_errno() == errno.EOPNOTSUPP, os.strerror(ctypes.get_errno())
    os.close(file)


def stores_to_mappings_and_writes_of_one_page_are_kept(one, two):
    (one / "mapped").write_bytes(bytes(8192))
    file = os.open(one / "mapped", os.O_RDWR)
    with mmap.mmap(file, 8192) as mapping:
        for number in range(1, 50):
            mapping[number] = number
            os.pwrite(file, bytes([number]), 4000 + number)
            assert mapping[4000 + number] == number, "an answered write is not seen in the mapping"
        mapping.flush()
    os.close(file)
    found = (two / "mapped").read_bytes()
    assert found[1:50] == found[4001:4050] == bytes(range(1, 50))


def a_write_clears_set_user_id(one, two):
    (one / "suid").write_bytes(b"program")
    os.chmod(one / "suid", 0o6777)

    def write():
        os.setgroups([])
        os.setgid(61234)
        os.setuid(61234)
        file = os.open(one / "suid", os.O_WRONLY)
        os.write(file, b"P")
        sys.exit(0)

    if os.getuid() == 0:
        writer = multiprocessing.Process(target=write)
        writer.start()
        writer.join()
        assert writer.exitcode == 0
        assert eventually(lambda: (one / "suid").stat().st_mode & 0o6000 == 0)


def nobody_reaches_what_is_the_servers_own(one, two):
    for path in ".iogate", "link":
        if path == "link":
            os.symlink(".iogate", one / "link")
        try:
            names = os.listdir(one / path)
        except OSError:
            continue
        raise AssertionError(f"{path} shows {names}")


def a_path_has_at_most_4096_bytes(one, two):
    here = os.open(one, os.O_RDONLY)
    depth = 0
    try:
        while depth < 30:
            name = f"{depth:03}" + "d" * 200
            os.mkdir(name, dir_fd=here)
            deeper = os.open(name, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
            depth += 1
    except OSError as error:
        assert error.errno == errno.ENAMETOOLONG, error
    os.close(here)
    assert 18 <= depth <= 20, f"{depth} levels of 203 bytes"


PROMISES = [function for name, function in list(globals().items()) if callable(function)
            and getattr(function, "__code__", None) and function.__code__.co_varnames[:2] == ("one", "two")]


def main():
    way, one, two, *without = sys.argv[1:]
    names = [promise.__name__ for promise in PROMISES]
    assert set(without) <= set(names), f"there is no promise {set(without) - set(names)}: {names}"
    broken = 0
    for promise in PROMISES:
        if promise.__name__ in without:
            continue
        words = promise.__name__.replace("_", " ")
        below = f"{way}-{promise.__name__[:24]}"
        (Path(one) / below).mkdir()
        assert eventually((Path(two) / below).is_dir)
        began = time.monotonic()
        try:
            promise(Path(one) / below, Path(two) / below)
        except (AssertionError, OSError) as error:
            broken += 1
            print(f"{way}: {words}: BROKEN: {type(error).__name__} {error}")
        else:
            print(f"{way}: {words} ({time.monotonic() - began:.1f} s)")
    sys.exit(broken > 0)


main()
