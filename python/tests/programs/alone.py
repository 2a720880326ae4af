"""Takes a turn where there is no coordinator: at a place, and strictly or not."""

import sys

import iogate

place, strict = sys.argv[1:]
try:
    with iogate.turn(place, strict={"default": None, "strict": True}[strict]) as turn:
        print("token", turn.token, "valid", turn.is_valid)
except iogate.CoordinatorUnreachable as error:
    print("unreachable", error.errno, isinstance(error, ConnectionError))
