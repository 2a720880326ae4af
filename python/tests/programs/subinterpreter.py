"""Wants a turn at a place in a subinterpreter: before the main interpreter has had one, and after."""

import importlib
import sys

import iogate

WANTS = f"""
import iogate
try:
    iogate.acquire({sys.argv[1]!r})
except ImportError as error:
    print("refused" if "not for subinterpreters" in str(error) else error, flush=True)
"""

if sys.version_info >= (3, 13):
    interpreters = importlib.import_module("_interpreters")
else:
    interpreters = importlib.import_module("_xxsubinterpreters")
interpreters.run_string(interpreters.create(), WANTS)
with iogate.turn(sys.argv[1]):
    pass
interpreters.run_string(interpreters.create(), WANTS)
