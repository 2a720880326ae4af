"""Takes a turn at a place, prints its token, and keeps it until standard input ends."""

import sys

import iogate

with iogate.turn(sys.argv[1]) as turn:
    print(turn.token, flush=True)
    sys.stdin.read()
