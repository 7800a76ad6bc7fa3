"""REST endpoints of the Scraper."""

from __future__ import annotations

from indexmill.scraper.settings import ScraperApiSettings
from indexmill.scraper.wiring import build_api

handler = build_api(ScraperApiSettings.from_environment())
