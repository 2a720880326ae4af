"""`iogate://` against a real server: fsspec's own suites, and what else is promised."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_SECONDS, ROOT, built, printed

fsspec = pytest.importorskip("fsspec", reason="the Python package fsspec is not installed")

import fsspec.tests.abstract as suites  # noqa: E402

from iogate.filesystem import IogateFileSystem  # noqa: E402

fsspec.register_implementation("iogate", IogateFileSystem, clobber=True)


class Server:
    """One that serves a directory."""

    def __init__(self, program: Path, directory: Path, listen: str = "127.0.0.1:0") -> None:
        directory.mkdir(exist_ok=True)
        # On loopback everybody is nobody.
        directory.chmod(0o777)
        self.directory = directory
        command = [str(program), "serve", "--directory", str(directory), "--listen", listen, "--with-parent"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line.strip())
            if said[-1] == "ready":
                break
        assert said[-1:] == ["ready"], said
        (self.address,) = (line.split()[-1] for line in said if line.startswith("listening at "))

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def server(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    built("python/iogate/_native.abi3.so", "python/build")
    directory = tmp_path_factory.mktemp("served")
    for folder in (directory, directory.parent):
        folder.chmod(0o777)
    running = Server(program, directory / "files")
    yield running
    running.stop()


class Fixtures(suites.AbstractFixtures):  # type: ignore[misc]
    """What the suites want to know of a file system."""

    @pytest.fixture
    def fs(self, server: Server) -> IogateFileSystem:
        return IogateFileSystem(server.address, auto_mkdir=True)

    @pytest.fixture
    def fs_path(self, tmp_path: Path) -> str:
        return f"/{tmp_path.name}"


class TestCopy(suites.AbstractCopyTests, Fixtures):  # type: ignore[misc]
    """Copies inside of it."""


class TestGet(suites.AbstractGetTests, Fixtures):  # type: ignore[misc]
    """Copies from it."""


class TestPut(suites.AbstractPutTests, Fixtures):  # type: ignore[misc]
    """Copies to it."""


class TestOpen(suites.AbstractOpenTests, Fixtures):  # type: ignore[misc]
    """Opens files."""

    @pytest.fixture(autouse=True)
    def directory(self, fs: IogateFileSystem, fs_path: str) -> None:
        fs.makedirs(fs_path, exist_ok=True)


class TestPipe(suites.AbstractPipeTests, Fixtures):  # type: ignore[misc]
    """Writes whole files."""


@pytest.fixture
def fs(server: Server) -> IogateFileSystem:
    return IogateFileSystem(server.address)


@pytest.fixture
def folder(fs: IogateFileSystem, request: pytest.FixtureRequest) -> str:
    # Without what patterns mean something by.
    path = "/" + re.sub(r"\W", "_", request.node.name)
    fs.mkdir(path)
    return path


def test_what_is_written_is_on_the_server(fs: IogateFileSystem, folder: str, server: Server) -> None:
    data = os.urandom(10 * 2**20 + 17)
    with fs.open(f"{folder}/a", "wb", block_size=2**20) as file:
        assert file.write(data) == len(data)
    assert (server.directory / folder[1:] / "a").read_bytes() == data
    with fs.open(f"{folder}/a", "rb", block_size=2**16) as file:
        assert file.seek(-5, os.SEEK_END) == len(data) - 5
        assert file.read() == data[-5:]
        file.seek(0)
        assert file.read() == data
    assert fs.cat_file(f"{folder}/a", start=-3) == data[-3:]
    assert fs.cat_ranges([f"{folder}/a"] * 2, [0, 5], [4, 9]) == [data[:4], data[5:9]]
    with fs.open(f"{folder}/a", "ab") as file:
        assert file.tell() == len(data)
        file.write(b"more")
        file.fsync()
    assert fs.size(f"{folder}/a") == len(data) + 4
    assert fs.tail(f"{folder}/a", 4) == b"more"


def test_names(fs: IogateFileSystem, folder: str, server: Server) -> None:
    fs.pipe({f"{folder}/a": b"1", f"{folder}/b": b"22"})
    (server.directory / folder[1:] / "link").symlink_to("b")
    (server.directory / folder[1:] / "dangling").symlink_to("nowhere")
    infos = {info["name"]: info for info in fs.ls(folder)}
    assert sorted(infos) == [f"{folder}/{name}" for name in ("a", "b", "dangling", "link")]
    link, dangling = infos[f"{folder}/link"], infos[f"{folder}/dangling"]
    assert (link["type"], link["size"], link["islink"]) == ("file", 2, True)
    assert (dangling["type"], dangling["islink"]) == ("other", True)
    assert fs.ls(f"{folder}/a", detail=False) == [f"{folder}/a"]
    assert fs.glob(f"{folder}/[ab]") == [f"{folder}/a", f"{folder}/b"]
    assert fs.du(folder) == 5
    fs.makedirs(f"{folder}/x/y/z")
    with pytest.raises(FileExistsError):
        fs.makedirs(f"{folder}/x/y/z")
    fs.makedirs(f"{folder}/x/y/z", exist_ok=True)
    fs.mv(f"{folder}/a", f"{folder}/x/y")
    assert fs.find(f"{folder}/x") == [f"{folder}/x/y/a"]
    fs.mv(f"{folder}/x", f"{folder}/moved")
    assert fs.cat(f"{folder}/moved/y/a") == b"1"
    before = fs.modified(f"{folder}/b")
    fs.touch(f"{folder}/b", truncate=False)
    assert fs.modified(f"{folder}/b") >= before
    assert fs.cat(f"{folder}/b") == b"22"
    fs.rm(folder, recursive=True)
    assert not fs.exists(folder)


@pytest.fixture
def linked(server: Server, folder: str) -> Path:
    """Files, and beside them a directory of links to them, and of one to itself."""
    place = server.directory / folder[1:]
    (place / "precious/deep").mkdir(parents=True)
    (place / "precious/a").touch()
    (place / "precious/deep/b").touch()
    (place / "run/below").mkdir(parents=True)
    (place / "run/file").touch()
    (place / "run/keep").symlink_to("../precious")
    (place / "run/below/keep").symlink_to("../../precious")
    (place / "run/one").symlink_to("../precious/a")
    (place / "run/self").symlink_to(".")
    (place / "run/dangling").symlink_to("nowhere")
    for each in (place, *(each for each in place.rglob("*") if each.is_dir())):
        # On loopback everybody is nobody.
        each.chmod(0o777)
    return place


def names_below(place: Path) -> list[str]:
    return sorted(str(each.relative_to(place)) for each in place.rglob("*"))


def test_what_is_behind_links_is_in_no_directory_of_theirs(
    fs: IogateFileSystem, folder: str, linked: Path, tmp_path: Path
) -> None:
    (linked / "precious/a").write_bytes(b"123")
    (linked / "run/dangling").unlink()
    names = ["below/keep", "file", "keep", "one", "self"]
    assert fs.find(f"{folder}/run") == [f"{folder}/run/{name}" for name in names]
    found = {info["name"]: info["type"] for info in fs.find(f"{folder}/run", detail=True).values()}
    assert found[f"{folder}/run/self"] == "other"
    assert found[f"{folder}/run/one"] == "file"
    assert fs.du(f"{folder}/run") == 3
    assert fs.glob(f"{folder}/run/**/a") == []
    ((_, directories, files),) = list(fs.walk(f"{folder}/run", maxdepth=1))
    assert (directories, sorted(files)) == (["below"], ["file", "keep", "one", "self"])

    fs.get(f"{folder}/run", str(tmp_path / "got"), recursive=True)
    fs.copy(f"{folder}/run", f"{folder}/copied", recursive=True)
    for copy in (tmp_path / "got", linked / "copied"):
        assert names_below(copy) == sorted([*names, "below"])
        assert (copy / "one").read_bytes() == b"123"
        assert not any((copy / "keep").iterdir())

    # Where one is named, it is followed.
    assert fs.isdir(f"{folder}/run/keep")
    assert fs.find(f"{folder}/run/keep") == [f"{folder}/run/keep/a", f"{folder}/run/keep/deep/b"]
    fs.get(f"{folder}/run/keep", str(tmp_path / "precious"), recursive=True)
    assert names_below(tmp_path / "precious") == ["a", "deep", "deep/b"]


PRECIOUS = ["precious", "precious/a", "precious/deep", "precious/deep/b"]
"""What removals of links to it leave alone."""


def test_what_links_lead_to_is_not_removed(fs: IogateFileSystem, folder: str, linked: Path) -> None:
    fs.rm(f"{folder}/run", recursive=True)
    assert names_below(linked) == PRECIOUS


@pytest.mark.parametrize("name", ["keep", "self", "one", "dangling", "below/keep", "keep/"])
@pytest.mark.parametrize("recursive", [True, False])
def test_a_link_is_removed_itself(
    fs: IogateFileSystem, folder: str, linked: Path, name: str, recursive: bool
) -> None:
    before = names_below(linked)
    fs.rm([f"{folder}/run/{name}"], recursive=recursive)
    assert names_below(linked) == [each for each in before if each != f"run/{name.rstrip('/')}"]


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("run/*", ["run"]),
        ("run/**", []),
        ("run/[ks]e*", ["run", "run/below", "run/below/keep", "run/dangling", "run/file", "run/one"]),
    ],
)
def test_patterns_find_nothing_behind_links(
    fs: IogateFileSystem, folder: str, linked: Path, pattern: str, left: list[str]
) -> None:
    fs.rm(f"{folder}/{pattern}", recursive=True)
    assert names_below(linked) == [*PRECIOUS, *left]
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{folder}/run/*/deep/*")
    fs.rm(f"{folder}/precious/**", recursive=True)
    assert names_below(linked) == left


@pytest.mark.parametrize("how", ["hard", "symbolic"])
def test_a_file_is_not_copied_onto_itself(
    fs: IogateFileSystem, folder: str, server: Server, how: str
) -> None:
    fs.pipe_file(f"{folder}/a", b"precious")
    link = server.directory / folder[1:] / "link"
    if how == "hard":
        os.link(link.with_name("a"), link)
    else:
        link.symlink_to("a")
    for source, target in (("a", "link"), ("link", "a")):
        with pytest.raises(shutil.SameFileError):
            fs.copy(f"{folder}/{source}", f"{folder}/{target}")
        assert fs.cat(f"{folder}/a") == b"precious"
    # Another file is replaced, and what a link leads to is.
    fs.pipe_file(f"{folder}/b", b"new")
    fs.copy(f"{folder}/b", f"{folder}/link")
    assert fs.cat(f"{folder}/a") == b"new"


def test_what_is_appended_overwrites_nothing(fs: IogateFileSystem, folder: str) -> None:
    path = f"{folder}/log"
    with fs.open(path, "ab") as one, fs.open(path, "ab") as other:
        one.write(b"one\n")
        other.write(b"other\n")
    assert sorted(fs.cat(path).splitlines()) == [b"one", b"other"]


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_what_was_made_durable_is_not_written_again(fs: IogateFileSystem, folder: str, mode: str) -> None:
    path = f"{folder}/log"
    with fs.open(path, mode, block_size=4) as file:
        for written in (b"12", b"3", b"", b"45678", b"9"):
            file.write(written)
            file.fsync()
            assert fs.size(path) == file.tell()
        file.write(b"0")
    assert fs.cat(path) == b"1234567890"


def test_an_append_that_failed_halfway_goes_on_there(fs: IogateFileSystem, folder: str) -> None:
    class Full:
        """Takes so much at a time."""

        def __init__(self, file: Any) -> None:
            self.file, self.rooms = file, [3, 0, 1, 1]

        def append(self, data: bytes) -> Any:
            room = self.rooms.pop(0)
            if room == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self.file.append(data[:room])

        def close(self) -> None:
            self.file.close()

    path = f"{folder}/log"
    with fs.open(path, "ab", block_size=5) as file:
        file._file = Full(file._file)
        with pytest.raises(OSError, match="No space"):
            file.write(b"12345")
        assert fs.cat(path) == b"123"
    assert fs.cat(path) == b"12345"


def test_so_many_levels_are_removed(fs: IogateFileSystem, folder: str, server: Server) -> None:
    fs.makedirs(f"{folder}/x/y")
    fs.touch(f"{folder}/x/y/z")
    with pytest.raises(OSError, match="not empty"):
        fs.rm(f"{folder}/x", recursive=True, maxdepth=1)
    assert fs.exists(f"{folder}/x/y/z")
    with pytest.raises(ValueError, match="maxdepth"):
        fs.rm(f"{folder}/x", recursive=True, maxdepth=0)
    with pytest.raises(OSError, match="not empty"):
        fs.rm(f"{folder}/x")
    fs.rm(f"{folder}/x", recursive=True, maxdepth=2)
    assert names_below(server.directory / folder[1:]) == []
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{folder}/x", recursive=True)


def test_errors_are_those_of_the_system(fs: IogateFileSystem, folder: str) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        fs.open(f"{folder}/none")
    assert missing.value.errno is not None
    assert missing.value.filename == f"{folder}/none"
    with pytest.raises(FileNotFoundError):
        fs.open(f"{folder}/none/file", "wb")
    with pytest.raises(IsADirectoryError):
        fs.open(folder)
    with pytest.raises(FileExistsError):
        fs.mkdir(folder)
    fs.touch(f"{folder}/file")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir(folder)
    with pytest.raises(NotADirectoryError):
        fs.open(f"{folder}/file/below")
    with pytest.raises(ValueError, match="expected one of rb, wb, ab, xb"):
        fs.open(f"{folder}/file", "r+b")


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({}, ValueError, "expected a server"),
        ({"server": "io1"}, ValueError, "the port is missing"),
        ({"server": "127.0.0.1:1", "auth": "trust"}, ValueError, "expected 'none', 'socket' or 'munge'"),
        ({"server": "127.0.0.1:1", "tls": {"key": "k"}}, ValueError, "expected authorities, certificate"),
        (
            {"server": "127.0.0.1:1", "tls": {"authorities": "/no", "certificate": "/no", "key": "/no"}},
            ValueError,
            "tls: ",
        ),
        ({"server": "unix:/nothing/here"}, OSError, "/nothing/here"),
    ],
)
def test_servers_that_there_are_not(arguments: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error) as raised:
        IogateFileSystem(**arguments, skip_instance_cache=True).ls("/")
    assert said in str(raised.value)


def test_urls(server: Server, folder: str) -> None:
    url = f"iogate://{server.address}{folder}/a.txt"
    with fsspec.open(url, "wt") as file:
        file.write("text\n")
    assert fsspec.open(url, "rt").open().read() == "text\n"
    fs, path = fsspec.core.url_to_fs(url)
    assert (type(fs), path) == (IogateFileSystem, f"{folder}/a.txt")
    assert fs.unstrip_protocol(path) == url
    assert fsspec.core.url_to_fs(url)[0] is fs
    other, _ = fsspec.core.url_to_fs("iogate:///x", server="unix:/s")
    assert (other.server, other.unstrip_protocol("/x")) == ("unix:/s", "iogate:///x")


def test_a_unix_socket(program: Path, tmp_path: Path) -> None:
    running = Server(program, tmp_path / "files", f"unix:{tmp_path}/socket")
    try:
        fs = IogateFileSystem(f"unix:{tmp_path}/socket")
        fs.pipe("/a", b"1")
        assert fs.info("/a")["uid"] == os.geteuid()
        assert (tmp_path / "files/a").read_bytes() == b"1"
    finally:
        running.stop()


def test_a_transaction_is_all_or_nothing(fs: IogateFileSystem, folder: str) -> None:
    with fs.transaction:
        with fs.open(f"{folder}/a", "wb") as file:
            file.write(b"1")
        assert not fs.exists(f"{folder}/a")
    assert fs.ls(folder, detail=False) == [f"{folder}/a"]
    with pytest.raises(LookupError), fs.transaction:
        with fs.open(f"{folder}/b", "wb") as file:
            file.write(b"1")
        raise LookupError
    assert fs.ls(folder, detail=False) == [f"{folder}/a"]


def test_a_look_that_failed_does_not_say_that_nothing_is_there(
    fs: IogateFileSystem, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = f"{folder}/a"
    fs.pipe_file(path, b"precious")
    with monkeypatch.context() as patched:
        patched.setattr(fs, "info", failing)
        fs.touch(path, truncate=False)
        assert fs.cat_file(path) == b"precious"
        with pytest.raises(OSError, match="Input/output error"), fs.transaction:
            fs.open(path, "xb")
        with fs.transaction, fs.open(path, "ab") as file:
            file.write(b" and more")
    assert fs.cat(path) == b"precious and more"
    fs.touch(f"{folder}/b", truncate=False)
    assert fs.cat(f"{folder}/b") == b""
    fs.touch(folder, truncate=False)


def test_a_transaction_appends(fs: IogateFileSystem, folder: str) -> None:
    for record in (b"1", b"2"):
        with fs.transaction:
            with fs.open(f"{folder}/log", "ab") as file:
                file.write(record)
            assert fs.exists(f"{folder}/log") == (record == b"2")
    assert fs.cat(f"{folder}/log") == b"12"
    assert fs.ls(folder, detail=False) == [f"{folder}/log"]


def test_a_new_file_of_a_transaction_replaces_nothing(
    fs: IogateFileSystem, folder: str, server: Server
) -> None:
    with fs.transaction, fs.open(f"{folder}/new", "xb") as file:
        file.write(b"1")
    assert fs.ls(folder, detail=False) == [f"{folder}/new"]
    with pytest.raises(FileExistsError), fs.transaction:
        fs.open(f"{folder}/new", "xb")
    with pytest.raises(FileExistsError), fs.transaction:
        with fs.open(f"{folder}/late", "xb") as file:
            file.write(b"mine")
        (server.directory / folder[1:] / "late").write_bytes(b"made meanwhile")
    assert (server.directory / folder[1:] / "late").read_bytes() == b"made meanwhile"


def test_it_is_pickled_as_what_it_connects_to(fs: IogateFileSystem, folder: str) -> None:
    fs.pipe(f"{folder}/a", b"1")
    assert pickle.loads(pickle.dumps(fs)).cat(f"{folder}/a") == b"1"
    with fs.open(f"{folder}/a", "rb") as file:
        assert pickle.loads(pickle.dumps(file)).read() == b"1"


def _child(fs: IogateFileSystem, file: Any, written: Any, folder: str, queue: Any) -> None:
    try:
        seen = [fs.cat(f"{folder}/a"), file.read()]
        fs.pipe(f"{folder}/child", b"of the child")
        try:
            written.write(b"x" * (8 * 2**20))
        except OSError as error:
            seen.append(str(error))
        queue.put(seen)
    except BaseException as error:
        queue.put(repr(error))
        raise


def test_children_of_fork_have_sessions_of_their_own(fs: IogateFileSystem, folder: str) -> None:
    data = os.urandom(2**20)
    fs.pipe(f"{folder}/a", data)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    with fs.open(f"{folder}/a", "rb") as file, fs.open(f"{folder}/b", "wb") as written:
        written.write(b"of the parent")
        children = [context.Process(target=_child, args=(fs, file, written, folder, queue)) for _ in range(3)]
        for child in children:
            child.start()
        for _ in children:
            seen = queue.get()
            assert seen[:2] == [data, data], seen
            assert "child of" in seen[2]
        for child in children:
            child.join(PATIENCE_SECONDS)
            assert child.exitcode == 0
        # The parent's session goes on.
        assert file.read() == data
    assert fs.cat(f"{folder}/b") == b"of the parent"
    assert fs.cat(f"{folder}/child") == b"of the child"


def test_a_server_that_is_killed_and_started_again(program: Path, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/socket"
    running = Server(program, tmp_path / "files", address)
    fs = IogateFileSystem(address, retry_for=PATIENCE_SECONDS)
    fs.pipe("/a", b"before")
    with fs.open("/a", "rb") as file:
        running.stop(signal.SIGKILL)
        running = Server(program, tmp_path / "files", address)
        try:
            assert file.read() == b"before"
            fs.pipe("/b", b"after")
            assert fs.cat("/b") == b"after"
        finally:
            running.stop()


def test_pandas_reads_and_writes(server: Server, folder: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"step": [1, 2, 3], "loss": [0.5, 0.25, 0.125]})
    url = f"iogate://{server.address}{folder}/frame.csv"
    frame.to_csv(url, index=False)
    pandas.testing.assert_frame_equal(pandas.read_csv(url), frame)


def test_the_program_of_the_documentation(server: Server, fs: IogateFileSystem) -> None:
    text = (ROOT / "docs/python-files.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    fs.mkdir("/results")
    register = (
        "import fsspec\nfsspec.register_implementation('iogate', 'iogate.filesystem.IogateFileSystem')\n"
    )
    said = printed("-W", "error", "-c", register + program.replace("io1:7000", server.address))
    assert said == "temperature 3.5\n\n['/results/step-1.txt'] b'3.5\\n'\n"
