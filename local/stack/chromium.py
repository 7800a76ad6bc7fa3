"""The Chromium of this machine."""

from __future__ import annotations

import os
import shutil
from typing import Final

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")


def chromium() -> str | None:
    """Return the path of the Chromium that INDEXMILL_CHROMIUM names, or of one on the path; None for none."""
    named = os.environ.get("INDEXMILL_CHROMIUM")
    return named or next((found for name in _NAMES if (found := shutil.which(name))), None)
