"""The processes of the soak test: data servers, forwarders, mounts. Each is known by its process id, and ended by it."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

SERVERS = 2
FORWARDERS = 2
RETRY_FOR = 30  # seconds that mounts wait for a forwarder that has gone, less than the preload library's 60
START_MAX = 60.0

SERVER = """
[[listen]]
{listen}
[[export]]
name = "objects"
directory = "{folder}/objects"
{users}
[[export]]
name = "names"
directory = "{folder}/names"
{users}
"""
FORWARDER = """
node = {index}
nodes = {forwarders}
[[listen]]
{listen}
[[export]]
servers = [{servers}]
stripe = "64KiB"
gate = {{ scheduler = "twins", window = "1ms" }}
{client}
{users}
"""
OWN = f"{os.geteuid()}:{os.getegid()}"
# For each transport: how a listener knows who connects, and what an export lets them do.
LISTEN = {
    "unix": 'auth = "peer"',
    "tcp": f'auth = "none"\nanonymous = "{OWN}"\nallow_unauthenticated_forwarders = true',
}
USERS = {
    "unix": f'forwarders = [{os.geteuid()}]\nusers = {{ squash = "none" }}',
    "tcp": f'forwarders = [{os.geteuid()}]\nusers = {{ squash = "all", nobody = "{OWN}" }}',
}


class Node:
    """A server or a forwarder."""

    def __init__(self, name, folder, endpoint):
        self.name, self.endpoint = name, endpoint
        self.config = folder / f"{name}.toml"
        self.said = folder / f"{name}.out"
        self.log = folder / f"{name}.log"
        self.process = None
        self.memory = self.descriptors = 0
        self.is_stopped = False

    def is_ready(self):
        return "ready" in self.said.read_text(encoding="utf-8")


class Stage:
    def __init__(self, folder, iogate, library, transport, finding):
        self.folder, self.iogate, self.library, self.finding = folder, iogate, library, finding
        self.transport = transport
        self.mounts = []  # (process, folder)
        self.changing = threading.Lock()
        names = [f"server-{n}" for n in range(SERVERS)] + [f"forwarder-{n}" for n in range(FORWARDERS)]
        self.nodes = [Node(name, folder, self.endpoint(name)) for name in names]
        self.servers, self.forwarders = self.nodes[:SERVERS], self.nodes[SERVERS:]
        for index, node in enumerate(self.nodes):
            node.config.write_text(self.config(node, index), encoding="utf-8")

    def endpoint(self, name):
        if self.transport == "unix":
            return f"unix:{self.folder}/{name}.socket"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{free.getsockname()[1]}"

    def config(self, node, index):
        listen = f'at = "{node.endpoint}"\n{LISTEN[self.transport]}'
        users = USERS[self.transport]
        if node in self.servers:
            data = self.folder / node.name
            for part in ("objects", "names"):
                (data / part).mkdir(parents=True)
            return SERVER.format(listen=listen, folder=data, users=users)
        servers = ", ".join(f'"{server.endpoint}"' for server in self.servers)
        client = "" if self.transport == "unix" else 'client = { auth = "none" }'
        return FORWARDER.format(
            index=index - SERVERS,
            forwarders=FORWARDERS,
            listen=listen,
            servers=servers,
            client=client,
            users=users,
        )

    def start(self, node):
        """Starts a node, and waits until it serves."""
        with open(node.said, "w", encoding="utf-8") as said, open(node.log, "a", encoding="utf-8") as log:
            node.process = subprocess.Popen([self.iogate, "serve", node.config], stdout=said, stderr=log)
        until = time.monotonic() + START_MAX
        while not node.is_ready():
            if time.monotonic() > until or node.process.poll() is not None:
                self.finding("a node does not start", f"{node.name}: {node.log.read_text()[-300:]}")
                return False
            time.sleep(0.02)
        return True

    def kill(self, node):
        self.watch(node)
        node.process.kill()
        node.process.wait()

    def stop_for(self, node, seconds):
        node.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            node.process.send_signal(signal.SIGCONT)

    def watch(self, node):
        """Looks at what a node takes."""
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{node.process.pid}")
            for line in (process / "status").read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM:"):
                    node.memory = max(node.memory, int(line.split()[1]) // 1024)
            node.descriptors = max(node.descriptors, len(os.listdir(process / "fd")))

    def mount(self, forwarder):
        """Mounts through a forwarder. Returns where."""
        point = self.folder / f"mount-{len(self.mounts)}"
        point.mkdir()
        command = [
            self.iogate,
            "mount",
            "--remote",
            forwarder.endpoint,
            point,
            "-f",
            "--retry-for",
            f"{RETRY_FOR}s",
        ]
        with open(self.folder / f"{point.name}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self.mounts.append((process, point))
        until = time.monotonic() + START_MAX
        while not os.path.ismount(point):
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit(f"soak: {point} is not mounted: see {self.folder}/{point.name}.log")
            time.sleep(0.02)
        return str(point)

    def end(self, is_well):
        """Ends everything: in order if all is well, else in any case."""
        for process, point in self.mounts:
            if is_well and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    self.finding("a mount does not end", str(point))
            if process.poll() is None:
                process.kill()
            subprocess.run(["umount", "--lazy", point], stderr=subprocess.DEVNULL, check=False)
        for node in reversed(self.nodes):
            if node.process is None or node.process.poll() is not None:
                continue
            if is_well:
                node.process.terminate()
                try:
                    if node.process.wait(30) != 0:
                        self.finding("a node ends badly", f"{node.name}: {node.process.returncode}")
                except subprocess.TimeoutExpired:
                    self.finding("a node does not end", node.name)
            if node.process.poll() is None:
                node.process.kill()
        for process in [process for process, _ in self.mounts] + [
            node.process for node in self.nodes if node.process
        ]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        for log in self.folder.glob("*.log"):
            if "panicked at" in log.read_text(encoding="utf-8", errors="replace"):
                self.finding("a panic", str(log))
