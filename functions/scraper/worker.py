"""Consumer of the scrape queue."""

from __future__ import annotations

from indexmill.scraper.settings import ScraperWorkerSettings
from indexmill.scraper.wiring import build_worker

handler = build_worker(ScraperWorkerSettings.from_environment())
