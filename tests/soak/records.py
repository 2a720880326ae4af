"""What the soak test writes, and how a file is held against what was acknowledged.

A record has a header (magic, writer, number, bytes, check sum of header and body) and a body that follows from writer and number. Files that are
replaced and cells that are overwritten are records, too.
"""

import json
import struct
import zlib
from pathlib import Path

HEADER = struct.Struct("<4sIIII")
MAGIC = b"\xa7rec"
CELL = 512


def record(writer, number, size):
    """A record of so many bytes, header and all."""
    seed = struct.pack("<II", writer, number)
    body = (zlib.crc32(seed).to_bytes(4, "little") + seed) * (size // 12 + 1)
    body = body[: size - HEADER.size]
    return HEADER.pack(MAGIC, writer, number, size, checksum(writer, number, size, body)) + body


def checksum(writer, number, size, body):
    return zlib.crc32(body, zlib.crc32(struct.pack("<III", writer, number, size)))


def read_at(data, at):
    """The record at an offset: (writer, number, bytes), or None if there is no whole one."""
    if len(data) - at < HEADER.size:
        return None
    magic, writer, number, size, check = HEADER.unpack_from(data, at)
    body = data[at + HEADER.size : at + size]
    if magic != MAGIC or size < HEADER.size or len(body) != size - HEADER.size:
        return None
    return (writer, number, size) if checksum(writer, number, size, body) == check else None


def parse(data):
    """The records of a file in order, and what is none: (offset, bytes, what it is)."""
    found, others, at = [], [], 0
    while at < len(data):
        here = read_at(data, at)
        if here:
            found.append(here)
            at += here[2]
            continue
        begin = at
        while True:
            at = data.find(MAGIC, at + 1)
            if at < 0:
                at = len(data)
            if at == len(data) or read_at(data, at):
                break
        gap = data[begin:at]
        others.append((begin, at - begin, "a torn record" if any(gap[:64]) else "zeros"))
    return found, others


class Log:
    """What a worker has done, on disk of this machine: a line for each call, whether it was answered or not."""

    def __init__(self, path):
        self.file = open(path, "w", buffering=1, encoding="ascii")  # noqa: SIM115

    def add(self, what, number, begin, end, detail=0):
        self.file.write(f"{what} {number} {begin:.6f} {end:.6f} {detail}\n")

    @staticmethod
    def read(path):
        """(what, number, begin, end, detail) of each call. The line of one that never ended is missing."""
        for line in Path(path).read_text(encoding="ascii").splitlines():
            parts = line.split()
            if len(parts) == 5:
                yield parts[0], int(parts[1]), float(parts[2]), float(parts[3]), int(parts[4])


def check_appends(data, logs, truncations, finding):
    """Holds a file against the logs of its writers (by number) and of the one who truncated it.

    A call that failed, or has never ended, may have taken effect, and at any time."""
    found, others = parse(data)
    for offset, size, what in others:
        finding(what, f"{size} bytes at {offset} of {len(data)}")
    cuts = [(begin, end, what == "ok") for what, _, begin, end, _ in truncations]
    places = {}
    for place, (writer, number, _) in enumerate(found):
        if (writer, number) in places:
            finding("a record is there twice", f"record {number} of writer {writer}")
        places[writer, number] = place
    for writer, log in logs.items():
        last = -1
        attempts = 0
        for what, number, begin, end, _ in log:
            attempts = max(attempts, number + 1)
            place = places.get((writer, number))
            is_behind = any(cut_begin > end and done for cut_begin, _, done in cuts)
            is_before = all(done and cut_end < begin for _, cut_end, done in cuts)
            if what == "ok" and is_before and place is None:
                finding(
                    "an acknowledged record is lost", f"record {number} of writer {writer}, at {begin:.3f}"
                )
            if what == "ok" and is_behind and place is not None:
                finding("a record from before a truncation is there", f"record {number} of writer {writer}")
            if place is not None:
                if place < last:
                    finding("records of a writer are out of order", f"record {number} of writer {writer}")
                last = max(last, place)
        for known, number in places:
            # One more than was logged may be on its way.
            if known == writer and number > attempts:
                finding("a record that nobody wrote", f"record {number} of writer {writer}")
    for writer, number in places:
        if writer not in logs:
            finding("a record that nobody wrote", f"record {number} of writer {writer}")
    return len(found)


def check_cells(data, logs, finding):
    """Holds a file of cells against its writers' logs, in which `detail` is the cell."""
    last, attempts = {}, {}
    for writer, log in logs.items():
        for what, number, _, _, cell in log:
            attempts[cell] = (writer, number)
            if what == "ok":
                last[cell] = (writer, number)
    for cell, (writer, number) in sorted(attempts.items()):
        here = read_at(data[: (cell + 1) * CELL], cell * CELL)
        acknowledged = last.get(cell, (writer, -1))[1]
        if here is None:
            piece = data[cell * CELL : (cell + 1) * CELL]
            if cell in last:
                what = "zeros" if not any(piece) else "torn"
                finding(
                    "an acknowledged write is lost",
                    f"cell {cell} has {what}, not {acknowledged} of writer {writer}",
                )
        elif here[0] != writer or here[1] < acknowledged:
            finding(
                "an acknowledged write is lost",
                f"cell {cell} has {here[1]} of writer {here[0]}, not {acknowledged} of writer {writer}",
            )
    return len(attempts)


def check_names(there, expected, unknown, finding):
    """Holds a folder, {name: bytes}, against what its worker left, {name: (number, size)}. Of `unknown` names nothing is known."""
    for name, content in there.items():
        if name in unknown:
            continue
        if name not in expected:
            finding("a file that was removed is there", name)
        elif content != record(0, *expected[name]):
            what = "zeros" if content and not any(content) else f"{len(content)} bytes"
            finding("a small file is not what it was", f"{name}: {what}, not {expected[name][1]} bytes")
    for name in expected:
        if name not in there and name not in unknown:
            finding("a small file is lost", name)
    return len(expected)


def load_names(path):
    state = json.loads(Path(path).read_text(encoding="ascii"))
    return {name: tuple(of) for name, of in state["files"].items()}, set(state["unknown"])
