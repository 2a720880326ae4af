#!/usr/bin/env python3
"""A hostile client: `attack.py UNTIL SEED LOG ENDPOINT...`. Speaks pieces of the protocol (docs/protocol.md) to servers that may be dead, for
4 s, then is silent for 4 s, and so on. LOG gets the begin and the end of each attack. It does not matter to it what it is answered."""

import contextlib
import random
import select
import socket
import struct
import sys
import time

PHASE = 4.0
HELD_MAX = 60
HELLO, WRITE, STATUS = 1, 13, 40


def header(kind, number, fields=b"", payload_bytes=0):
    start = struct.pack("<IHHQQII", payload_bytes, len(fields), kind, number, 0, 0, 0)
    return start + bytes(16) + struct.pack("<QHHI", 0, 0, 0xFFFF, 0) + fields


def hello(random_, unix, export=b"", session=bytes(16)):
    fields = b"iogate\r\n" + struct.pack("<HB", 2, 1 if unix else 0) + session
    fields += struct.pack("<IIQ", 0, 0, 0) + random_.randbytes(16) + struct.pack("<I", 0)
    for text in (export, b"a hostile client"):
        fields += struct.pack("<H", len(text)) + text
    return header(HELLO, 0, fields)


class Attacker:
    def __init__(self, seed, endpoints):
        self.random = random.Random(seed)
        self.endpoints = endpoints
        self.held = []  # sockets that stay open, each with bytes that go out one by one

    def connect(self):
        endpoint = self.random.choice(self.endpoints)
        unix = endpoint.startswith("unix:")
        connected = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        connected.settimeout(1)
        if unix:
            connected.connect(endpoint[5:])
        else:
            host, port = endpoint.rsplit(":", 1)
            connected.connect((host, int(port)))
        connected.settimeout(0.2)
        return connected, unix

    def hold(self, connected, trickle=b""):
        connected.setblocking(False)
        self.held.append([connected, trickle])

    def garbage(self):
        connected, _ = self.connect()
        connected.sendall(self.random.randbytes(self.random.randint(1, 8192)))
        self.hold(connected)

    def half_a_hello(self):
        connected, unix = self.connect()
        message = hello(self.random, unix)
        cut = self.random.randrange(len(message))
        connected.sendall(message[:cut])
        self.hold(connected, message[cut:])

    def nothing(self):
        self.hold(self.connect()[0])

    def flood(self):
        connected, unix = self.connect()
        connected.sendall(hello(self.random, unix))
        with contextlib.suppress(TimeoutError):
            for number in range(1, 2000):
                connected.sendall(header(STATUS, number))
        self.hold(connected)

    def slow_write(self):
        connected, unix = self.connect()
        fields = struct.pack("<IIQIIIQ", 1, 0, 0, 1 << 20, 0, 0, 0)
        connected.sendall(hello(self.random, unix) + header(WRITE, 1, fields, 1 << 20))
        self.hold(connected, bytes(1000))

    def huge(self):
        connected, unix = self.connect()
        lengths = struct.pack(
            "<IHH", self.random.choice([1 << 24, (1 << 32) - 1]), 0xFFFF, self.random.randrange(60)
        )
        connected.sendall(hello(self.random, unix) + lengths + bytes(56))
        self.hold(connected, bytes(1000))

    def somebody_else(self):
        connected, unix = self.connect()
        connected.sendall(hello(self.random, unix, session=self.random.randbytes(16)))
        self.hold(connected)

    def round(self):
        way = self.random.choice(
            [
                self.garbage,
                self.half_a_hello,
                self.nothing,
                self.flood,
                self.slow_write,
                self.huge,
                self.somebody_else,
            ]
        )
        with contextlib.suppress(OSError):
            way()
        for entry in list(self.held):
            connected, trickle = entry
            try:
                if trickle and select.select([], [connected], [], 0)[1]:
                    connected.send(trickle[:1])
                    entry[1] = trickle[1:]
            except OSError:
                connected.close()
                self.held.remove(entry)
        while len(self.held) > HELD_MAX:
            self.held.pop(0)[0].close()

    def let_go(self):
        for connected, _ in self.held:
            connected.close()
        self.held.clear()


def main():
    until, seed, log, *endpoints = sys.argv[1:]
    attacker = Attacker(seed, endpoints)
    with open(log, "w", buffering=1, encoding="ascii") as phases:
        while time.monotonic() < float(until):
            time.sleep(PHASE)
            begin = time.monotonic()
            while time.monotonic() < min(begin + PHASE, float(until)):
                attacker.round()
                time.sleep(0.02)
            attacker.let_go()
            phases.write(f"{begin} {time.monotonic()}\n")


main()
