"""Draws pictures of the tables of docs/performance.md and docs/performance-gate.md, so that no picture says anything else than its table."""

import re

from drawing import Drawing

WIDTH, RIGHT, HEIGHT = 760, 60, 19
STYLE = "<style>.aim{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:3 2} .span{stroke-width:1.6}</style>"


def tables(page, heading):
    """The tables of a section, up to the next heading: lists of rows, the first one the header."""
    text = page.read_text(encoding="utf-8")
    match = re.search(rf"^##+ {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    if not match:
        raise SystemExit(f"pictures: error: expected a section `{heading}` in {page}, found none")
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", match[1], re.M):
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
        found.append([row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)])
    return found


def values(cell):
    """Median, least and most of `2.77 (2.68 to 2.98)`, of `3 (2..4)`, and of `1.33 -> 1.68 (1.46..1.83)`, whose last ones count."""
    cell = cell.split("->")[-1].replace("*", "").replace(",", "")
    number = r"(-?\d+(?:\.\d+)?)"
    match = re.search(rf"{number}(?:\s*\({number}\s*(?:\.\.|to|-)\s*{number}\))?", cell)
    middle = float(match[1])
    return middle, float(match[2] or middle), float(match[3] or middle)


def dots(label, unit, series, rows, aim, least=0.0):
    """A row for each of `rows` (a name, then a triple for each of `series`), a dot for its median and a line from least to most. `aim(name)` is a mark, or none."""
    drawing = Drawing(WIDTH, label)
    drawing.parts.append(STYLE)
    left = 24 + max(len(name) for name, *_ in rows) * 6.3
    most = max(triple[2] for _, *triples in rows for triple in triples) * 1.02
    at = lambda value: left + (value - least) / (most - least) * (WIDTH - left - RIGHT)
    for index, name in enumerate(series):
        x = left + sum(len(before) * 6.6 + 36 for before in series[:index])
        drawing.dot(x, drawing.y + 6, f"c{index}")
        drawing.text(x + 10, drawing.y + 10, name)
    drawing.y += 30
    top = drawing.y
    for name, *triples in rows:
        drawing.text(16, drawing.y + 13, name)
        drawing.line(left, drawing.y + HEIGHT, WIDTH - RIGHT + 10, drawing.y + HEIGHT)
        if (goal := aim(name)) is not None:
            drawing.line(at(goal), drawing.y, at(goal), drawing.y + HEIGHT, "aim")
        for index, (middle, low, high) in enumerate(triples):
            y = drawing.y + 9 + (index - (len(triples) - 1) / 2) * 4
            drawing.line(at(low), y, at(high), y, f"c{index} span")
            drawing.dot(at(middle), y, f"c{index}")
        drawing.y += HEIGHT
    step = next(step for step in (0.1, 0.25, 0.5, 1, 2, 5, 10) if (most - least) / step <= 9)
    tick = least
    while tick <= most:
        drawing.text(at(tick), drawing.y + 16, f"{tick:g}", "soft", "middle")
        drawing.line(at(tick), top - 4, at(tick), drawing.y)
        tick += step
    drawing.text(WIDTH - 12, drawing.y + 34, unit, "soft", "end")
    drawing.y += 36
    return drawing.svg()


def mount(docs):
    """The mount over io_uring and over /dev/fuse, by libfuse over io_uring."""
    header, *rows = tables(docs / "performance.md", "The mount beside libfuse's pass-through")[0]
    peer = header.index("passthrough_ll-uring")
    ours = [header.index(name) for name in ("iogate-uring", "iogate-device")]

    def ratios(row):
        of = values(row[peer])[0]
        return [tuple(value / of for value in values(row[column])) for column in ours]

    rows = [(f"{row[1]}, {row[2]}, {row[3]} job{'s' if row[3] != '1' else ''}", *ratios(row)) for row in rows]
    label = "The mount's operations a second, of those of libfuse's passthrough_ll over io_uring."
    return dots(label, "times libfuse over io_uring", ["iogate over io_uring", "iogate over /dev/fuse"], rows, lambda _: 1)


def nfs(docs):
    header, *rows = tables(docs / "performance.md", "The NFS server beside nfs-ganesha")[0]
    ours, theirs, processor, their_processor = (header.index(name) for name in ("ours, calls/s", "ganesha, calls/s", "ours, us of processor each", "ganesha, us"))

    def row_of(row):
        calls, cost = values(row[theirs])[0], values(row[processor])[0]
        return (
            row[0],
            tuple(value / calls for value in values(row[ours])),
            tuple(value / cost for value in values(row[their_processor])),
        )

    def aim(name):
        return 2 if "4 KiB" in name else 1 if "1 MiB" in name else None

    label = "Calls a second of the NFS server by those of nfs-ganesha, and nfs-ganesha's processor time of a call by ours."
    return dots(label, "times nfs-ganesha", ["calls a second", "calls in the same processor time"], [row_of(row) for row in rows], aim)


def c_library(docs):
    header, *rows = tables(docs / "performance-gate.md", "The C libraries")[0]
    columns = [header.index(name) for name in ("`carry_out`", "`start`", "by hand, one thread")]
    rows = [(row[0].strip("`"), *(values(row[column]) for column in columns)) for row in rows]
    label = "Requests a second through the C library with four threads, by scheduler, beside one thread with a gate by hand."
    by_hand = {name: triples[-1][0] for name, *triples in rows}

    def aim(name):
        return 0.8 * by_hand[name] if name in ("mlf", "aioli") else 2

    return dots(label, "millions of requests a second", ["four threads, carry_out", "four threads, start", "one thread by hand"], rows, aim)


def simulator(docs):
    header, *rows = tables(docs / "performance.md", "The simulator")[0]
    series = [name.strip("`") for name in header[1:]]
    rows = [(row[0], *(values(cell) for cell in row[1:])) for row in rows]
    label = "Simulated requests a second on one core, by workload and scheduler, with the aim of each workload."
    return dots(label, "millions of simulated requests a second", series, rows, lambda name: 0.5 if "all models" in name else 1)


def all_pictures(docs):
    yield "cost-mount", mount(docs)
    yield "cost-nfs", nfs(docs)
    yield "cost-c-library", c_library(docs)
    yield "cost-simulator", simulator(docs)
