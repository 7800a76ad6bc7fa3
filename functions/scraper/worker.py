"""Consumer of the scrape queue."""

from indexmill.platform.observability import entry_point
from indexmill.scraper.settings import ScraperWorkerSettings
from indexmill.scraper.wiring import build_worker

handler = entry_point(build_worker(ScraperWorkerSettings.from_environment()))
