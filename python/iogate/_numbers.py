"""Whole numbers of arguments: an error names the argument, which the extension cannot."""

from __future__ import annotations

U32_MAX = 2**32 - 1
"""The largest number of 32 bits."""
U64_MAX = 2**64 - 1
"""The largest number of 64 bits."""


def within(name: str, value: object, least: int, most: int) -> None:
    """Refuses a whole number that is out of range; what is no number is for the extension to refuse.

    Raises:
        OverflowError: It is out of range.
    """
    if isinstance(value, int) and not least <= value <= most:
        raise OverflowError(f"{name} = {value} is out of range: expected {least} to {most}")
