"""The extension module, loaded where it is needed: the rest of the package works without it."""

from __future__ import annotations

import importlib
from typing import Any


def extension() -> Any:
    """The module `iogate._native`.

    Raises:
        ImportError: It is not built, or cannot be loaded here.
    """
    try:
        return importlib.import_module("iogate._native")
    except ModuleNotFoundError as error:
        raise ImportError(
            "iogate._native, the extension, is not built: install the package from the sources of iogate"
            " (pip install ./python, which takes Rust), or build it where it is (python/build)"
        ) from error
    except ImportError as error:
        raise ImportError(
            f"iogate._native cannot be loaded: {error};"
            " it is for the main interpreter, not for subinterpreters"
        ) from error
