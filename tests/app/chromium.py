"""The Chromium of the machine, and how it is started."""

import os
import shutil

ARGUMENTS = [
    "--headless",
    "--no-sandbox",  # which root cannot use
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Path of Chromium: TAGSEG_CHROMIUM if it is set, otherwise the one that a shell finds."""
    return os.environ.get("TAGSEG_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
