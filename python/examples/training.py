"""A training loop that takes turns with other jobs for its checkpoints.

    python training.py DIRECTORY [--steps N] [--every N] [--layers N] [--log FILE]

The model is a stand-in: nested dicts of bytes, pickled and written in pieces of 1 MiB. A checkpoint needs the
`with` line and no more. The log has a JSON line for each one: its token, and when it began and ended, on the
clock that all processes of a machine share.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import time
from collections.abc import Sequence
from pathlib import Path

import iogate

PIECE_BYTES = 2**20
"""A write of a checkpoint."""

State = dict[str, dict[str, bytes]]
"""Parameters by layer and name."""


def initial(layers: int) -> State:
    """A model: 4 MiB of weights and some bias in each layer."""
    return {
        f"layer{index}": {"weight": bytes(4 * PIECE_BYTES), "bias": bytes(4096)} for index in range(layers)
    }


def train(state: State, step: int) -> None:
    """One step: changes some of every layer, and takes a while."""
    for parameters in state.values():
        parameters["bias"] = step.to_bytes(4096, "little")
    time.sleep(0.002)


def save(state: State, path: Path) -> int:
    """Writes a checkpoint beside the last one and puts it in its place; the number of bytes."""
    data = memoryview(pickle.dumps(state))
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        for begin in range(0, len(data), PIECE_BYTES):
            file.write(data[begin : begin + PIECE_BYTES])
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    return len(data)


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, and writes a checkpoint after every few steps."""
    parser = argparse.ArgumentParser(description="Trains, and takes turns for its checkpoints.")
    parser.add_argument("directory", type=Path, help="where checkpoints go")
    parser.add_argument("--steps", type=int, default=20, help="steps of the training")
    parser.add_argument("--every", type=int, default=5, help="steps between checkpoints")
    parser.add_argument("--layers", type=int, default=2, help="layers of the model, of 4 MiB each")
    parser.add_argument("--log", type=Path, help="what is appended to")
    options = parser.parse_args(arguments)

    state = initial(options.layers)
    size = options.layers * 4 * PIECE_BYTES
    for step in range(1, options.steps + 1):
        train(state, step)
        if step % options.every != 0:
            continue
        with iogate.turn(options.directory, bytes=size) as turn:
            began = time.monotonic()
            written = save(state, options.directory / f"model-{os.getpid()}.pickle")
            ended = time.monotonic()
        line = {"step": step, "began": began, "ended": ended, "token": turn.token, "bytes": written}
        print(f"step {step}: {written} bytes in {ended - began:.3f} s after {turn.waited:.3f} s of waiting")
        if options.log:
            with options.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
