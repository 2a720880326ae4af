#!/usr/bin/env python3
"""Runs the commands of pages as printed, each page in a machine of its own.

    tests/system/pages.py [--program IOGATE | --root DIR] [--systemd PACKAGES] [--work DIR] [PAGE...]

A page's blocks of code are told apart by what stands behind the opening ```:

    sh              commands; whatever they print is right, a command that fails is not
    console         commands behind `$ `, continued behind `> `; the other lines are what they print. `...` stands for anything: within a
                    line, and as a line of its own for any lines. More lines may come between and behind
    ... no-run WHY  in either: not run, because WHY
    ... same-as F   in any language: is what the file F of the checkout has below the comment at its head
    anything else   is not looked at

The blocks of a page run in order, in one bash, in a fresh empty directory, with the program first in PATH, as root. The machine is made of
namespaces: its own processes, mounts, network (with loopback only) and host name. Its files are those of this machine, which it cannot change, but /tmp,
/mnt, /srv, /run, /var, /data and /scratch are its own, empty but for the folders that pages name: /tmp/data and /tmp/gate, /mnt/gate and /mnt/scratch,
/srv/data, /var/lib/node_exporter, and `examples` of the checkout in the page's own. The hosts `io0`, `io1`, `ds0` and `ds1` are itself, at an address each. When a page has
ended, everything that it started or mounted has gone with it.

A page whose blocks begin with `# on the NAME` has two such machines, of these names, with a network between them. A block runs where it says, or where the
one before it did, and only when that one has ended. The directory is common to both.

With --root, the files are those of the Debian in DIR, on which iogate is installed, and nothing is there of the checkout.

With --systemd, a page's machines are those of tests/system/systemd-machine, on which the packages in PACKAGES are installed, and blocks are run that are marked
`no-run it takes systemd`, too. These pages have two machines.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES_AT_ONCE = 3
# A page is killed after this; on a machine that does nothing else, each takes a small part of it.
PAGE_SECONDS_MAX = 180
# Where it boots machines first.
BOOTED_PAGE_SECONDS_MAX = 400
TAKES_SYSTEMD = "it takes systemd"
# Machines of a page that has more than one: what is at the ends of a wire.
NODES = 2

# Makes the machine NODE with the files FILES and becomes the page's script there: WORK is the page's folder, which has the script, and KEPT folders of the
# checkout that are needed. ADDRESS is that of the network between two machines.
MACHINE = r"""
set -euo pipefail
new=$WORK/root
mkdir -p "$new"
mount -t tmpfs machine "$new"
for path in "${FILES%/}"/* "${FILES%/}"/.[!.]*; do
    [ -e "$path" ] || continue
    name=${path##*/}
    case $name in tmp | mnt | srv | run | var | data | scratch | proc | dev | sys) continue ;; esac
    if [ -L "$path" ]; then cp -a "$path" "$new/$name"
    elif [ -d "$path" ]; then
        mkdir "$new/$name"
        mount --rbind "$path" "$new/$name"
        mount -o remount,ro,bind "$new/$name"
    fi
done
mkdir "$new"/{tmp,mnt,srv,run,run/page,var,data,scratch,proc,dev,sys}
mkdir -p "$new"/var/{tmp,log,lib/node_exporter} "$new"/mnt/{gate,scratch} "$new"/tmp/{data,gate} "$new"/srv/data
mount -t proc proc "$new/proc"
for path in /dev /sys; do mount --rbind "$path" "$new$path"; done
while read -r kept; do # where /tmp or another of these holds what is needed
    [ -z "$kept" ] || [ -d "$new$kept" ] || { mkdir -p "$new$kept" && mount --bind "$kept" "$new$kept"; }
done <<<"$KEPT"
mount --bind "$WORK" "$new/run/page"
mount --bind "$WORK/hosts" "$new/etc/hosts"
hostname "$NODE"
ip link set lo up
if [ -n "$ADDRESS" ]; then
    until ip link show wire >/dev/null 2>&1; do sleep 0.05; done
    ip address add "$ADDRESS" dev wire
    ip link set wire up
fi
chmod 1777 "$new/tmp"
mkdir "$new/tmp/page"
mount --bind "$WORK/page" "$new/tmp/page" # stays with its logs when a page has failed
cd "$new"
exec chroot . /usr/bin/env bash -c 'cd /tmp/page && exec bash "/run/page/script.$0"' "$NODE"
"""
NAMESPACES = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child"]

NAMESPACES_OF_BOOTED = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]

# Two machines, whose names are its arguments, and a wire between them. It ends with the first of them: one has failed, or all commands are through.
MACHINES = r"""
set -euo pipefail
pids=()
for node; do
    NODE=$node ADDRESS=10.0.0.$((${#pids[@]} + 1))/24 $NAMESPACES bash -c "$MACHINE" &
    pids+=($!)
    until [ "$(readlink "/proc/$!/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
done
ip link add wire netns "${pids[0]}" type veth peer name wire netns "${pids[1]}"
wait -n
"""


# The same, each with a kernel and a systemd of its own: WORK has what they have in common, and WIRES are the ends of what is between them.
BOOTED = r"""
set -u
read -ra wires <<<"$WIRES"
count=0
for node; do
    mkdir "$WORK/$node"
    cp "$PACKAGES"/*.deb "$WORK/$node/"
    cat >"$WORK/$node/boot" <<END
set -e
mkdir /run/page /tmp/page
mount -t hostfs none /run/page -o "$WORK"
mount -t hostfs none /tmp/page -o "$WORK/page"
cp /run/page/hosts /etc/hosts
dpkg --force-unsafe-io --install /out/*.deb >/dev/null 2>&1
cd /tmp/page
exec bash /run/page/script.$node
END
    "$BOOT" --files "$FILES" --wire "${wires[count]}" "10.0.0.$((count + 1))/24" "$WORK/$node" "$node" boot &
    count=$((count + 1))
done
wait -n || exit
wait -n
"""


class Block:
    """Commands of a page that run on a node: as (line, text, expected), expected a list of lines, or None if anything is right."""

    def __init__(self, node, commands):
        self.node = node
        self.commands = commands


def blocks(text, with_systemd):
    """The blocks of a page to run, and the reasons of those that are not run, with their lines."""
    run, marked, fence, node = [], [], None, None
    for number, line in enumerate(text.splitlines(), 1):
        opening = re.match(r"```(.*)", line)
        if opening and fence is None:
            language, *words = opening[1].split(maxsplit=2) or [""]
            fence = (number, language, words, [])
        elif opening:
            start, language, words, lines = fence
            fence = None
            if words[:1] == ["same-as"] and len(words) == 2 and program_of(ROOT / words[1]) != "\n".join(lines):
                raise ValueError(f"line {start}: this is not what {words[1]} has below its head")
            if language not in ("sh", "console"):
                continue
            if with_systemd and words == ["no-run", TAKES_SYSTEMD]:
                words = []
            if words[:1] == ["no-run"] and len(words) == 2:
                marked.append((start, words[1]))
            elif words:
                raise ValueError(f"line {start}: expected ```{language} or ```{language} no-run WHY, got {' '.join(words)!r}")
            elif language == "sh":
                if named := re.fullmatch(r"# on the ([a-z]+)", lines[0] if lines else ""):
                    node = named[1]
                run.append(Block(node, [(start + 1, "\n".join(lines), None)]))
            else:
                run.append(Block(node, list(console(start + 1, lines))))
        elif fence:
            fence[3].append(line)
    nodes = {block.node for block in run}
    if len(nodes) > 1 and (None in nodes or len(nodes) != NODES):
        raise ValueError(f"expected blocks on one machine or on {NODES}, got {', '.join(sorted(map(str, nodes)))}")
    return run, marked


def program_of(path):
    """The text of a source file without the comment at its head."""
    return re.sub(r"\A(//!.*\n)+\n", "", path.read_text(encoding="utf-8")).rstrip("\n")


def console(start, lines):
    """The commands of a block, with what is expected of each."""
    command, expected, at = [], [], start
    for number, line in enumerate([*lines, "$ "], start):
        if line.startswith("$ "):
            if command:
                yield at, "\n".join(command), expected
            elif number > start:
                raise ValueError(f"line {start}: the first line of a block `console` begins with `$ `")
            command, expected, at = [line[2:]], [], number
        elif line.startswith("> ") and not expected:
            command.append(line[2:])
        elif line.strip():
            expected.append(line)


def script(blocks, node):
    """What bash runs on a node: each command's output goes into a file of its own, its beginning and end are noted, and it waits for those on other nodes."""
    out = ["set -e", "exec </dev/null"]
    commands = [(block.node, *command) for block in blocks for command in block.commands]
    for count, (at, line, command, _) in enumerate(commands):
        if at == node:
            out += [f"echo {line} >/run/page/at", f"exec >/run/page/out.{count} 2>&1", command, f": >/run/page/done.{count}"]
        else:
            out += [f"until [ -e /run/page/done.{count} ]; do sleep 0.05; done"]
    # What goes on in the background may be in the middle of things.
    out += ["echo end >/run/page/at"]
    return "\n".join(out) + "\n"


def fits(expected, said):
    """The first expected line that is not there, in order, or None."""
    said = iter(said)
    for line in expected:
        if line.strip() == "...":
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in re.split(r" ?\.\.\. ?", " ".join(line.split()))))
        if not any(pattern.fullmatch(" ".join(found.split())) for found in said):
            return line
    return None


def machines(run, work, flags):
    """What starts the machines for blocks that are to be run, and its environment: of the Debian in `root`, or of this machine."""
    root, program = flags.root, flags.program
    nodes = list(dict.fromkeys(block.node or "io0" for block in run))
    (work / "page").mkdir()
    hosts = ["127.0.0.1 localhost"]
    if len(nodes) == 1:
        hosts += [f"127.0.1.{number} {name}" for number, name in enumerate(["io0", "io1", "ds0", "ds1"], 1)]
    else:
        hosts += [f"10.0.0.{number} {name}" for number, name in enumerate(nodes, 1)]
    (work / "hosts").write_text("\n".join(hosts) + "\n")
    for node in nodes:
        (work / f"script.{node}").write_text(script(run, node if len(nodes) > 1 else run[0].node), encoding="utf-8")
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "KEPT": ""}
    if not root:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("IOGATE")}
        environment |= {"PATH": f"{program.parent}:{environment['PATH']}", "KEPT": f"{ROOT}\n{program.parent}"}
        (work / "page/examples").symlink_to(ROOT / "examples")
    environment |= {"WORK": str(work), "FILES": str(root or "/"), "HOME": "/tmp", "NODE": nodes[0], "ADDRESS": ""}
    if len(nodes) == 1:
        return [*NAMESPACES, "bash", "-c", MACHINE], environment
    if flags.systemd:
        environment |= {"PACKAGES": str(flags.systemd), "BOOT": str(ROOT / "tests/system/systemd-machine")}
        return [*NAMESPACES_OF_BOOTED, "bash", "-c", BOOTED, "bash", *nodes], environment
    environment |= {"MACHINE": MACHINE, "NAMESPACES": " ".join(NAMESPACES)}
    return [*NAMESPACES, "--mount-proc", "bash", "-c", MACHINES, "bash", *nodes], environment


def ended(command, environment, work, seconds_max):
    """How the machines have ended, which are killed after a time."""
    wires = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    numbers = [wire.fileno() for wire in wires]
    environment |= {"WIRES": " ".join(map(str, numbers))}
    with (work / "machine").open("w") as machine, wires[0], wires[1]:
        with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=machine, stderr=machine, pass_fds=numbers) as process:
            try:
                return process.wait(seconds_max)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                return f"killed after {seconds_max} s"


def run_page(page, flags):
    """Runs a page: the blocks that were run, those that were not, and what was wrong."""
    try:
        run, marked = blocks(page.read_text(encoding="utf-8"), flags.systemd)
    except ValueError as error:
        return 0, [], [str(error)]
    if not run:
        return 0, marked, []
    work = flags.work / re.sub(r"\W", "-", str(page.relative_to(ROOT)))
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "at").write_text("0")
    command, environment = machines(run, work, flags)
    status = ended(command, environment, work, BOOTED_PAGE_SECONDS_MAX if flags.systemd else PAGE_SECONDS_MAX)
    commands = [command for block in run for command in block.commands]
    outputs = [work / f"out.{index}" for index in range(len(commands))]
    said = [path.read_text(errors="replace") if path.exists() else "" for path in outputs]
    at = (work / "at").read_text().strip()
    wrong = []
    for (line, text, expected), output in zip(commands, said, strict=True):
        if str(line) == at or (at == "0" and not wrong):
            tail = "\n".join(output.splitlines()[-15:]) or (work / "machine").read_text()
            wrong.append(f"line {line}: ended here ({status}):\n{text}\n--- it said\n{tail}")
            break
        missing = fits(expected or [], output.splitlines())
        if missing is not None:
            wrong.append(f"line {line}: `{text}` was to print\n{missing}\n--- it said\n{output}")
    if not wrong and status:
        wrong.append(f"the page ended with {status}")
    if not wrong:
        shutil.rmtree(work, ignore_errors=True)
    return len(run), marked, wrong


def main():
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--program", type=Path, default=ROOT / "target/debug/iogate")
    flags.add_argument("--root", type=Path)
    flags.add_argument("--systemd", type=Path)
    flags.add_argument("--work", type=Path, default=ROOT / "target/pages")
    flags.add_argument("pages", nargs="*", type=Path)
    flags = flags.parse_args()
    pages = [page.resolve() for page in flags.pages] or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for name in ["program", "root", "systemd", "work"]:
        setattr(flags, name, (path := getattr(flags, name)) and path.resolve())
    with ThreadPoolExecutor(PAGES_AT_ONCE) as threads:
        results = list(threads.map(lambda page: run_page(page, flags), pages))
    ran, not_run, failed = 0, [], 0
    for page, (count, marked, wrong) in zip(pages, results, strict=True):
        name = page.relative_to(ROOT)
        ran += count
        not_run += [f"{name}:{line}: {reason}" for line, reason in marked]
        failed += bool(wrong)
        if count or wrong:
            print(f"{'FAIL' if wrong else 'ok'}  {name}  {count} blocks run, {len(marked)} not")
        for what in wrong:
            print(f"{name}: {what}")
    print("\n".join(["not run:", *not_run]))
    print(f"{ran} blocks run, {len(not_run)} marked `no-run`, {failed} pages failed")
    return 1 if failed or not ran else 0


sys.exit(main())
