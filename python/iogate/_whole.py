"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator

STREAMS = (1, 2)
"""Standard output and standard error."""


@contextlib.contextmanager
def whole(path: str) -> Iterator[str | int]:
    """Gives what to write to: a file that gets the name in the end, or a descriptor, which is closed then.

    A link stays, and leads to the new file. Standard output, pipes and devices get what comes as it comes.

    Raises:
        OSError: There can be no file of this name.
    """
    stream = _own_stream(path)
    if stream is not None:
        try:
            yield stream
        finally:
            os.close(stream)
        return
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if os.path.exists(path) and not os.path.isfile(path):
        yield path
        return
    place = os.path.realpath(path)
    part = f"{place}.{secrets.token_hex(4)}.part"
    try:
        # Made here so that a folder that is missing or closed is found before there is anything to write.
        with open(part, "x", encoding="utf-8"):
            pass
    except OSError as error:
        # By the name that somebody gave.
        raise OSError(error.errno, error.strerror, path) from error
    try:
        yield part
        os.replace(part, place)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


def _own_stream(path: str) -> int | None:
    """Another descriptor of what this process prints to, if that is what the path names.

    As /dev/stdout does, also when it is redirected to a file, which must not be replaced under the stream.
    """
    for stream in STREAMS:
        try:
            is_it = os.path.samestat(os.stat(path), os.fstat(stream))
        except OSError:
            continue
        if is_it:
            # What was printed before comes first.
            print(end="", flush=True)
            return os.dup(stream)
    return None
