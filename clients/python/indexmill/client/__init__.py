"""Client SDK: submit URLs, wait for their jobs, act on them, search the corpus.

>>> with Client("https://…/dev", api_key) as client:
...     accepted = client.submit("https://example.com/handbook.html")
...     [job] = client.wait([accepted.job_id], timeout_s=60)
...     hits = client.search("how to repair a broken spine")
"""

from __future__ import annotations

from indexmill.client.connection import Client
from indexmill.client.errors import ApiError, BatchTimeout, WaitTimeout
from indexmill.client.stream import StreamReader
from indexmill.contracts.cost import Budget
from indexmill.contracts.crawl import CrawlRules

__all__ = ["ApiError", "BatchTimeout", "Budget", "Client", "CrawlRules", "StreamReader", "WaitTimeout"]
