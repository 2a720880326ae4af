"""Has a turn at a place while its children, by `fork` and by `spawn`, want one too."""

import multiprocessing
import sys

import iogate


def late(place: str) -> str:
    """What a child gets while its parent has the turn."""
    try:
        with iogate.turn(place, timeout=0.2):
            return "has it too"
    except iogate.TurnTimeout:
        return "late"


def prompt(place: str) -> int:
    """What a child gets when nobody has the turn: a token."""
    with iogate.turn(place) as turn:
        return turn.token


def inherited(place: str) -> str:
    """What a child of fork makes of its parent's turn: nothing."""
    turn.release()
    return f"valid {turn.is_valid}; alone {late(place)}"


if __name__ == "__main__":
    place = sys.argv[1]
    with iogate.turn(place) as turn:
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                print(method, pool.map(late, [place, place]))
                if method == "fork":
                    print(pool.apply(inherited, [place]))
        print("valid", turn.is_valid)
    tokens = [turn.token]
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            tokens += sorted(pool.map(prompt, [place, place]))
    print("tokens rise", all(one < next for one, next in zip(tokens, tokens[1:])))
