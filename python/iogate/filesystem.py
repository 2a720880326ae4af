"""Files of iogate's servers for everything that speaks fsspec: pandas, dask, zarr, torch.

    import pandas

    frame = pandas.read_csv("iogate://io1:7000/results/step-1.csv")

The program is a client of the server, as a mount is: its reads and writes pass the server's gate.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import uuid
from datetime import datetime, timezone
from glob import has_magic
from typing import TYPE_CHECKING, Any, Literal

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.utils import stringify_path

from iogate._extension import extension

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iogate._native import Attributes, Connection
    from iogate._native import File as NativeFile

MODES = ("rb", "wb", "ab", "xb")
"""How files are opened."""


class IogateFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Files of servers, by `iogate://HOST:PORT/path`.

    One object is one session. A child of `fork` gets a session of its own when it first asks for something.

    Args:
        server: `HOST:PORT` or `unix:/path` of a server; several, separated by commas, have the same files.
        export: The server's export; empty for its first one.
        auth: How the server knows who this is: "none", "socket" (the kernel's word, or a certificate) or
            "munge"; `None` is "socket" over Unix sockets and TLS, else "none".
        tls: PEM files: `authorities`, `certificate` and `key`; and the server's `name`, if it is not the
            host's.
        retry_for: Seconds for which requests wait for a server that has gone, before they fail.
        app: The application of reads and writes; `None` is that of the process (`IOGATE_APP` and so on).
        auto_mkdir: Whether a file's directory is made when the file is.
        options: Those of all of fsspec's file systems.
    """

    protocol = "iogate"
    root_marker = "/"

    def __init__(  # noqa: PLR0913
        self,
        server: str | None = None,
        *,
        export: str = "",
        auth: str | None = None,
        tls: dict[str, str] | None = None,
        retry_for: float = 60.0,
        app: int | None = None,
        auto_mkdir: bool = False,
        **options: Any,
    ) -> None:
        """Keeps what is to be connected to; the first call connects."""
        super().__init__(**options)
        if not server:
            raise ValueError("expected a server, as in iogate://HOST:PORT/path or server='unix:/path'")
        unknown = set(tls or ()) - {"authorities", "certificate", "key", "name"}
        missing = {"authorities", "certificate", "key"} - set(tls or ()) if tls is not None else set()
        if unknown or missing:
            raise ValueError(
                f"tls: expected authorities, certificate, key and perhaps name, found {sorted(tls or ())}"
            )
        self.server = server
        self.auto_mkdir = auto_mkdir
        self._options: dict[str, Any] = {
            "export": export,
            "auth": auth,
            "tls": (tls["authorities"], tls["certificate"], tls["key"], tls.get("name")) if tls else None,
            "retry_for": retry_for,
            "app": app,
        }
        self._session: tuple[int, Connection] | None = None

    def connection(self) -> Connection:
        """The session of this process, which is begun if need be.

        Raises:
            OSError: The server cannot be reached, or refuses.
        """
        session = self._session
        if session is None or session[0] != os.getpid():
            connection = extension().Connection(self.server.split(","), **self._options)
            # Threads may have begun several: one is kept.
            session = self._session = (os.getpid(), connection)
        return session[1]

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Paths begin with a slash; the server is no part of them."""
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        if path.startswith("iogate://"):
            path = "/" + path[len("iogate://") :].partition("/")[2]
        return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        """The server that a URL names."""
        path = stringify_path(path)
        server = path[len("iogate://") :].partition("/")[0] if path.startswith("iogate://") else ""
        return {"server": server} if server else {}

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""
        if name.startswith("iogate://"):
            return name
        host = "" if self.server.startswith("unix:") or "," in self.server else self.server
        return f"iogate://{host}{self._strip_protocol(name)}"

    @property
    def fsid(self) -> str:
        """Tells the file systems of servers apart."""
        return f"iogate:{self.server}:{self._options['export']}"

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """What is at a path; a symbolic link is followed, if it leads somewhere."""
        path = self._strip_protocol(path)
        attr = self.connection().attr(_native(path), False)
        return self._info(path, attr)

    def _info(
        self, path: str, attr: Attributes, follow_links: bool | Literal["files"] = True
    ) -> dict[str, Any]:
        is_link = stat.S_ISLNK(attr[0])
        if is_link and follow_links:
            with contextlib.suppress(OSError):
                there = self.connection().attr(_native(path), True)
                if follow_links is True or not stat.S_ISDIR(there[0]):
                    attr = there
        mode, size, uid, gid, links, inode, atime, mtime, ctime = attr
        kind = "directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
        return {
            "name": path,
            "size": size if kind == "file" else 0,
            "type": kind,
            "mode": mode,
            "uid": uid,
            "gid": gid,
            "nlink": links,
            "ino": inode,
            "atime": atime,
            "mtime": mtime,
            "created": ctime,
            "islink": is_link,
        }

    def ls(
        self,
        path: str,
        detail: bool = True,
        follow_links: bool | Literal["files"] = True,
        **kwargs: Any,
    ) -> list[Any]:
        """What is in a directory, or the file at the path.

        Without `follow_links`, links in the directory are themselves, and not what they lead to; with
        "files", those to directories are.
        """
        path = self._strip_protocol(path)
        found = self.info(path)
        if found["type"] == "directory":
            listed = self.connection().list(_native(path))
            infos = [self._info(_below(path, name), attr, follow_links) for name, attr in listed]
        else:
            infos = [found]
        return infos if detail else [info["name"] for info in infos]

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: str | Callable[[OSError], Any] = "omit",
        **kwargs: Any,
    ) -> Iterator[Any]:
        """What is in a directory, and in those in it.

        Links to directories are among the files, as on a local disk: what they lead to may be anywhere, also
        above. All that looks at a whole directory (`find`, `du`, `glob`, `get`, `copy`) goes by this.
        """
        how = {"follow_links": "files", **kwargs}
        return super().walk(path, maxdepth=maxdepth, topdown=topdown, on_error=on_error, **how)  # type: ignore[no-any-return]

    def created(self, path: str) -> datetime:
        """When anything of it was changed last: file systems keep nothing earlier."""
        return datetime.fromtimestamp(self.info(path)["created"], tz=timezone.utc)

    def modified(self, path: str) -> datetime:
        """When its data was changed last."""
        return datetime.fromtimestamp(self.info(path)["mtime"], tz=timezone.utc)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Makes a directory, and those above it."""
        path = self._strip_protocol(path)
        if create_parents and path != "/":
            self.makedirs(self._parent(path), exist_ok=True)
        self.connection().mkdir(_native(path), 0o777 & ~_umask())

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory, and those above it."""
        path = self._strip_protocol(path)
        try:
            self.mkdir(path, create_parents=False)
        except FileNotFoundError:
            self.makedirs(self._parent(path), exist_ok=True)
            self.mkdir(path, create_parents=False)
        except FileExistsError:
            if not exist_ok or not self.isdir(path):
                raise

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        self.connection().remove(_native(self._strip_protocol(path)), True)

    def rm_file(self, path: str) -> None:
        """Removes a file, or another name."""
        self.connection().remove(_native(self._strip_protocol(path)), False)

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, and with `recursive` directories and what is in them.

        A link is removed, not what it leads to; nor does a pattern find what is behind one.
        """
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        for one in path if isinstance(path, list) else [path]:
            place, levels = self._strip_protocol(one), maxdepth if recursive else 0
            found = [place]
            if has_magic(place):
                # What is in a directory is removed before it.
                found = sorted(self.glob(place, maxdepth=maxdepth, follow_links=False), reverse=True)
                if not found:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
                # As fsspec counts: the pattern has taken one of the levels.
                levels = levels - 1 if levels else levels
            for each in found:
                self._rm_tree(each, levels)

    def _rm_tree(self, path: str, levels: int | None) -> None:
        """Removes what is at a path, and so many levels of what is in it; all of them if `None`."""
        connection = self.connection()
        found = [(path, stat.S_ISDIR(connection.attr(_native(path), False)[0]), 0)]
        # It grows meanwhile: what is in a directory comes behind it.
        for place, is_directory, level in found:
            if is_directory and (levels is None or level < levels):
                listed = connection.list(_native(place))
                found += [(_below(place, name), stat.S_ISDIR(attr[0]), level + 1) for name, attr in listed]
        for place, is_directory, _ in reversed(found):
            connection.remove(_native(place), is_directory)

    def mv_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Renames; what has the other name is replaced."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.auto_mkdir:
            self.makedirs(self._parent(path2), exist_ok=True)
        self.connection().rename(_native(path1), _native(path2))

    def mv(
        self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any
    ) -> None:
        """Renames a file or a whole directory, or moves it into the directory that is there."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(target):
            target = target.rstrip("/") + "/" + source.rsplit("/", 1)[-1]
        self.mv_file(source, target)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies a file, through this program; of a directory, makes one.

        Raises:
            shutil.SameFileError: Both paths lead to the same file, by a link.
        """
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        if self.auto_mkdir:
            self.makedirs(self._parent(path2), exist_ok=True)
        if path1 == path2:
            return
        with self.open(path1, "rb") as source:
            # To open the target makes it empty.
            with contextlib.suppress(FileNotFoundError):
                if source.is_at(path2):
                    raise shutil.SameFileError(f"{path1} and {path2} are the same file")
            with self.open(path2, "wb") as target:
                shutil.copyfileobj(source, target, source.blocksize)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Makes an empty file; without `truncate`, one that is there gets new times."""
        path = self._strip_protocol(path)
        if truncate:
            with self.open(path, "wb"):
                return
        now = datetime.now(tz=timezone.utc).timestamp()
        try:
            self.connection().set_times(_native(path), now, now)
        except FileNotFoundError:
            # Who makes it meanwhile keeps what is in it.
            with self.open(path, "ab"):
                return

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """The bytes of a file, or those of a range; a negative number counts from the end."""
        file = self.connection().open(_native(self._strip_protocol(path)), "r", 0)
        try:
            size = file.attr()[1]
            begin, end = (_place(start, size, 0), _place(end, size, size))
            return file.read(begin, max(end - begin, 0))
        finally:
            file.close()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Makes a file of these bytes; with `mode="create"` it must not be there."""
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> IogateFile:
        if mode not in MODES:
            raise ValueError(f"mode: expected one of {', '.join(MODES)}, found {mode!r}")
        if self.auto_mkdir and mode != "rb":
            self.makedirs(self._parent(path), exist_ok=True)
        if block_size is None:
            block_size = IogateFile.DEFAULT_BLOCK_SIZE
        return IogateFile(
            self,
            path,
            mode,
            block_size=block_size,
            autocommit=autocommit,
            cache_options=cache_options,
            **kwargs,
        )


class IogateFile(AbstractBufferedFile):  # type: ignore[misc]
    """An open file.

    What is read is asked for in blocks, ahead where it is read in order; what is written goes in blocks, the
    last one when the file is closed. `fsync` makes what was written durable.
    """

    DEFAULT_BLOCK_SIZE = 4 * 2**20

    buffer: io.BytesIO
    offset: int | None

    def __init__(self, fs: IogateFileSystem, path: str, mode: str = "rb", **kwargs: Any) -> None:
        """Opens it at the server."""
        self._file: NativeFile | None = None
        self._process = os.getpid()
        autocommit = kwargs.get("autocommit", True)
        # Of a transaction: what is not committed has another name.
        self._at = path if autocommit or mode == "rb" else f"{path}.{uuid.uuid4().hex}.part"
        connection = fs.connection()
        if self._at != path:
            self._prepare(fs, path, mode)
        self._file = connection.open(_native(self._at), mode.rstrip("b"), 0o666 & ~_umask())
        attr = self._file.attr()
        if stat.S_ISDIR(attr[0]):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._inode = attr[5]
        if mode == "rb":
            kwargs["size"] = attr[1]
        super().__init__(fs, path, mode, **kwargs)
        if mode == "ab":
            self.loc = attr[1]

    def _prepare(self, fs: IogateFileSystem, path: str, mode: str) -> None:
        """Refuses in a transaction what is there already, or copies what is to be added to."""
        with contextlib.suppress(FileNotFoundError):
            if mode == "xb" and fs.info(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            if mode == "ab":
                # The copy is none of the transaction's files.
                with fs.open(path, "rb") as source, fs.open(self._at, "xb", autocommit=True) as target:
                    shutil.copyfileobj(source, target, source.blocksize)

    def is_at(self, path: str) -> bool:
        """Whether a path leads to this file."""
        attr: Attributes = self.fs.connection().attr(_native(path), True)
        return attr[5] == self._inode

    def _opened(self) -> NativeFile:
        """The file as this process has it: in a child of `fork` one that is read is opened again."""
        if self._process != os.getpid():
            if self.mode != "rb":
                raise OSError(
                    errno.ESTALE,
                    "the file is being written by the process that this one is a child of",
                    self.path,
                )
            file = self.fs.connection().open(_native(self._at), "r", 0)
            if file.attr()[5] != self._inode:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), self.path)
            self._file, self._process = file, os.getpid()
        assert self._file is not None, "it is opened when it is made"
        return self._file

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._opened().read(start, end - start)

    def _initiate_upload(self) -> None:
        """It is open already."""

    def _upload_chunk(self, final: bool = False) -> bool:
        self._send()
        if final and self.autocommit:
            self.commit()
        return True

    def _send(self) -> None:
        """Sends what is in the buffer. What has arrived leaves it: to append that again would double it."""
        file, data, sent = self._opened(), self.buffer.getvalue(), 0
        self.offset = self.offset or 0
        try:
            if self.mode == "ab":
                while sent < len(data):
                    sent += file.append(data[sent:])
            else:
                file.write(self.offset, data)
                sent = len(data)
        finally:
            self.offset += sent
            self.buffer = io.BytesIO()
            self.buffer.write(data[sent:])

    def fsync(self) -> None:
        """Makes durable what was written."""
        if self.mode != "rb":
            self.flush()
            # What is less than a block is kept back by a flush.
            self._send()
        self._opened().sync()

    def commit(self) -> None:
        """Gives the file its name, if it is one of a transaction."""
        if self._at != self.path:
            connection = self.fs.connection()
            # The name of a new one may have been taken meanwhile.
            rename = connection.rename_new if self.mode == "xb" else connection.rename
            rename(_native(self._at), _native(self.path))
            self._at = self.path

    def discard(self) -> None:
        """Removes what a transaction would have given its name."""
        if self._at != self.path:
            self.fs.connection().remove(_native(self._at), False)

    def close(self) -> None:
        """Writes what is left, and closes it.

        Raises:
            OSError: What was written could not be, or is known to be lost.
        """
        # It was never open, or it is the parent's, who has what is to be written.
        if self._file is None or (self._process != os.getpid() and self.mode != "rb"):
            self.closed = True
            return
        if self.closed:
            return
        try:
            super().close()
        finally:
            self.closed = True
            self._file.close()


def _native(path: str) -> str:
    """A path from the tree's root on."""
    return path.lstrip("/")


def _below(directory: str, name: str) -> str:
    return directory.rstrip("/") + "/" + name


def _place(at: int | None, size: int, absent: int) -> int:
    if at is None:
        return absent
    return min(max(at + size, 0) if at < 0 else at, size)


def _umask() -> int:
    """Permissions that new files do not get; the system call would change them for all threads."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022
