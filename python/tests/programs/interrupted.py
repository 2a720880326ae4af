"""Gets a signal while it simulates something that takes hours."""

import os
import signal
import sys
import threading
import time
import traceback

import iogate

MAIN = threading.main_thread().ident


def interrupt() -> None:
    """Sends the signal once the main thread is in the extension."""
    assert MAIN is not None
    while True:
        frame = sys._current_frames()[MAIN]
        if frame.f_code.co_name == "simulate":
            os.kill(os.getpid(), signal.SIGINT)
            return
        time.sleep(0.001)


threading.Thread(target=interrupt, daemon=True).start()
try:
    settings = {
        "app.ior.bytes": "1TiB",
        "app.ior.request": "32KiB",
        "servers.gate.scheduler": "fifo",
        "servers.device": "unit:1us",
    }
    iogate.simulate("aioli-one-ior", set=settings, threads=int(sys.argv[1]))
except KeyboardInterrupt as error:
    print("KeyboardInterrupt in", traceback.extract_tb(error.__traceback__)[-1].name)
