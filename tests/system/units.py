"""Runs a unit of systemd's as far as that goes without systemd: its command line, with its environment file and a socket to be told at.

    units.py UNIT INSTANCE CONFIGURATION [--kill] -- COMMAND...

CONFIGURATION is a folder in place of /etc/iogate. Once the service has said READY=1 the command is run. Then the service is told to
end by SIGTERM, must say STOPPING=1 and end with 0; with --kill it is killed instead. What the unit does afterwards is done in any case, and has
nothing to say: it would be in the journal of each stop.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile

# What is not judged, but must not hang a test for ever.
LIMIT_S = 120


def directives(path: str) -> list[tuple[str, str]]:
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    return [tuple(line.split("=", 1)) for line in lines if "=" in line and not line.startswith("#")]


def environment(path: str) -> dict[str, str]:
    values = {}
    for name, value in directives(path):
        # The outer quotes of a file are its own; what is within stays for the command line.
        quoted = re.fullmatch(r'"(.*)"', value)
        values[name] = quoted[1] if quoted else value
    return values


def words(line: str, env: dict[str, str]) -> list[str]:
    """A command line as systemd.service(5) says: $NAME becomes words, ${NAME} stays within its word."""
    found = []
    for word in line.split():
        if re.fullmatch(r"\$\w+", word):
            found += shlex.split(env.get(word[1:], ""))
        else:
            found.append(re.sub(r"\$\{(\w+)\}", lambda name: env.get(name[1], ""), word).replace("\\x20", " "))
    return found


def main() -> int:
    split = sys.argv.index("--")
    unit, instance, etc = sys.argv[1:4]
    is_killed = "--kill" in sys.argv[4:split]
    command = sys.argv[split + 1 :]

    def at(value: str) -> str:
        return value.replace("%i", instance).replace("/etc/iogate", etc)

    settings = [(name, at(value)) for name, value in directives(unit)]
    env = {}
    for name, value in settings:
        if name == "EnvironmentFile":
            env |= environment(value)
    (start,) = [value for name, value in settings if name == "ExecStart"]

    with tempfile.TemporaryDirectory() as folder:
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        manager.bind(f"{folder}/notify")
        manager.settimeout(LIMIT_S)
        service = subprocess.Popen(
            words(start, env), env=os.environ | env | {"NOTIFY_SOCKET": f"{folder}/notify"}, stdout=subprocess.DEVNULL
        )
        try:
            said = manager.recv(4096).decode()
            assert said.startswith("READY=1\nSTATUS="), f"expected READY=1, got {said!r}"
            subprocess.run(command, check=True, timeout=LIMIT_S)
            if not is_killed:
                service.send_signal(signal.SIGTERM)
                said = manager.recv(4096).decode()
                assert said.startswith("STOPPING=1\n"), f"expected STOPPING=1, got {said!r}"
                status = service.wait(LIMIT_S)
                assert status == 0, f"expected that it ends with 0, got {status}"
        finally:
            service.kill()
            service.wait()
    for name, value in settings:
        if name == "ExecStopPost":
            # A minus: its status does not count.
            run = subprocess.run(words(value.removeprefix("-"), env), capture_output=True, text=True, timeout=LIMIT_S, check=False)
            assert not run.stderr, f"expected nothing to be said, got {run.stderr!r}"
    return 0


sys.exit(main())
