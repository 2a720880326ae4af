"""The live page in a real browser: what it draws of a mount in use, in light and dark, wide and narrow, and that names stay text.

Called by live-page.sh with the page's address, the name of an application that tries to be markup, where a picture goes, and a command after
which the mount divides among groups. The browser is spoken to over two pipes (DevTools protocol: JSON messages, each ended by a zero byte).
"""

import base64
import json
import os
import select
import subprocess
import sys
import tempfile
import time

LIMIT = 60  # seconds; only what hangs takes so long


class Browser:
    """A headless browser with one page."""

    def __init__(self, profile: str) -> None:
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()

        def descriptors() -> None:
            # The browser reads at 3 and writes at 4; neither end may be there already.
            first, second = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            close_fds=False,
            preexec_fn=descriptors,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.number = 0
        self.buffer = b""
        self.session = None
        self.events: list[dict] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Runtime.enable")
        self.ask("Log.enable")
        self.ask("Page.enable")

    def receive(self) -> dict:
        end = time.monotonic() + LIMIT
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.into], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise SystemExit("the browser does not answer")
            some = os.read(self.into, 1 << 16)
            if not some:
                raise SystemExit("the browser has ended")
            self.buffer += some
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method: str, **params: object) -> dict:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def value(self, expression: str) -> object:
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise SystemExit(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def eventually(self, expression: str) -> None:
        end = time.monotonic() + LIMIT
        while not self.value(expression):
            if time.monotonic() > end:
                raise SystemExit(f"it never was so: {expression}\n{self.value('document.body.innerText')}")
            time.sleep(0.1)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def check(browser: Browser, url: str, evil: str, picture: str, divide: list[str]) -> None:
    browser.ask("Page.navigate", url=url)
    browser.eventually("document.getElementById('state')?.textContent === 'live'")
    rows = "[...document.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    # Both applications, with rates, latency and what they are entitled to.
    browser.eventually(f"{rows}.some((row) => row[0] === 'solver' && row[2].includes('iB/s'))")
    browser.eventually(f"{rows}.some((row) => row[0] === {json.dumps(evil)} && row[1].includes('iB/s'))")
    browser.eventually(f"{rows}.some((row) => row[0] === 'solver' && row[7] === '50 %')")
    browser.eventually("document.querySelector('.facts').textContent.includes('schedulerfifo')")
    # Pictures grow with each event: areas of two applications, and lines of their latency.
    points = (
        "Math.min(...[...document.querySelectorAll('polygon')].slice(0, 2).map((area) => area.points.length))"
    )
    browser.eventually(f"document.querySelectorAll('polygon').length >= 2 && {points} >= 6")
    browser.eventually("[...document.querySelectorAll('path')].some((path) => path.getTotalLength() > 1)")
    high = "Math.max(...[...document.querySelectorAll('polygon')].map((area) => area.getBBox().height))"
    browser.eventually(f"{high} > 20")
    # What a user is called is text: nothing of it became an element, nothing of it ran.
    found = browser.value(
        "[document.title, document.querySelectorAll('img, main script, main iframe').length]"
    )
    if found != ["iogate", 0]:
        raise SystemExit(f"a name became markup: {found}")
    # Readable on a phone, in the dark: nothing is wider than the window, and the colours are others.
    light = browser.value("getComputedStyle(document.body).backgroundColor")
    browser.ask("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.ask("Emulation.setEmulatedMedia", features=dark)
    browser.eventually("document.documentElement.scrollWidth <= 360 && innerWidth === 360")
    browser.eventually(f"getComputedStyle(document.body).backgroundColor !== {json.dumps(light)}")
    browser.ask(
        "Emulation.setDeviceMetricsOverride", width=1100, height=900, deviceScaleFactor=1, mobile=False
    )
    browser.ask("Emulation.setEmulatedMedia", features=[])
    browser.eventually("innerWidth === 1100")
    with open(picture, "wb") as file:
        file.write(base64.b64decode(browser.ask("Page.captureScreenshot")["data"]))
    # A group is a row with its users below, further to the right, and is in no picture.
    subprocess.run(divide, check=True)
    name = "(row) => row.cells[0].textContent"
    group = f"[...document.querySelectorAll('tbody tr')].find((row) => ({name})(row).startsWith('group '))"
    user = f"{group}?.nextElementSibling"
    browser.eventually(f"{user} && ({name})({user}).startsWith('user ')")
    browser.eventually(f"{user}.cells[0].style.paddingLeft === '1em'")
    areas = "[...document.querySelectorAll('polygon title')].map((title) => title.textContent)"
    browser.eventually(f"{areas}.some((area) => area.startsWith('user '))")
    if browser.value(f"{areas}.some((area) => area.startsWith('group '))"):
        raise SystemExit("a group is in the picture, beside those in it")
    # What was not told is drawn as nothing, not as what was before and after it.
    browser.value("for (const parts of gates.values()) for (const sample of parts.samples) sample.at -= 30")
    browser.eventually(
        "[...gates.values()].every((parts) => parts.samples.filter((sample) => sample.apps.size === 0).length >= 2)"
    )
    # A gate that is gone is not shown any more, and one that comes is.
    gone = "events.onmessage({ data: JSON.stringify({ gates: [] }) }); document.querySelectorAll('main section').length"
    if browser.value(gone) != 0:
        raise SystemExit("a gate that is gone is still there")
    browser.eventually("document.querySelectorAll('main section').length > 0")
    wrong = [
        event
        for event in browser.events
        if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")
    ]
    if wrong:
        raise SystemExit(f"the browser complains: {wrong}")


def main() -> None:
    url, evil, picture, *divide = sys.argv[1:]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            check(browser, url, evil, picture, divide)
        finally:
            browser.close()


main()
