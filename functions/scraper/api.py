"""REST endpoints of the Scraper."""

from indexmill.platform.observability import entry_point
from indexmill.scraper.settings import ScraperApiSettings
from indexmill.scraper.wiring import build_api

handler = entry_point(build_api(ScraperApiSettings.from_environment()))
