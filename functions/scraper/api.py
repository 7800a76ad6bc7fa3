"""The Scraper's REST endpoints."""

from __future__ import annotations

from indexmill.platform.http.app import create_app, lambda_handler
from indexmill.platform.observability import Observability
from indexmill.platform.time.deadline import request_limit
from indexmill.scraper.routes import routes
from indexmill.scraper.settings import ScraperApiSettings
from indexmill.scraper.wiring import build_api

_settings = ScraperApiSettings.from_environment()
_observability = Observability("scraper", level=_settings.log_level)
_limit_s = request_limit(_settings.scrape_timeout_s, _settings.integration_timeout_seconds)
app = create_app("Indexmill Scraper", [routes(build_api(_settings), _limit_s)], _observability)
handler = lambda_handler(app, _observability)
