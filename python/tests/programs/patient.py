"""Says that it is there, waits for a turn at a place, and says that Ctrl-C has ended that."""

import sys

import iogate

print("waits", flush=True)
try:
    with iogate.turn(sys.argv[1]):
        print("has the turn", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
