"""Ten pages at once that want all the memory there is: the worker takes little of it."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

from indexmill.contracts.content import MAX_UPLOAD_BYTES
from indexmill.scraper.settings import ScraperWorkerSettings
from tests.integration.scraper.site import Site
from tests.integration.scraper.worker_process import endless, grown, peak_of
from tests.support.function_env import template
from tests.unit.scraper.pdf_file import pdf

MOST_GROWTH_MB = 128
PAGES = ["/fine", *["/bomb"] * 4, *["/endless"] * 3, *["/announced"] * 2]


@pytest.mark.fault("F68")
def test_pages_that_want_all_memory_get_little_of_it(site: Site) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    # 320 MB of nothing, in 320 kB.
    bomb = b"".join(packer.compress(bytes(8 << 20)) for _ in range(40)) + packer.flush()
    site.page("/bomb", bomb, content_encoding="gzip")
    site.route("/endless", endless)
    site.route(
        "/announced", b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 9000000000\r\n\r\n"
    )
    site.page("/fine", "<!doctype html><title>T</title><p>Some words.</p>")
    (found,) = grown(site, [PAGES])
    assert found["codes"] == sorted(
        ["done", *["content_bomb"] * 4, *["content_too_large"] * 5],
    )
    assert found["grown_mb"] < MOST_GROWTH_MB, found


@pytest.mark.fault("F68")
@pytest.mark.shows("B59")
def test_the_largest_pages_and_their_children_fit_the_function(site: Site) -> None:
    """Ten pages of the largest size together, each of which takes up to fifteen times its bytes."""
    memory = template()["Resources"]["ScraperWorker"]["Properties"]["MemorySize"]
    largest = ScraperWorkerSettings.model_fields["max_content_bytes"].default
    wide = "word \U0001f600 text "
    page = "<!doctype html><title>T</title><p>" + wide * ((largest - 100) // len(wide.encode()))
    site.page("/wide", page)
    site.page("/tags", "<!doctype html><main>" + "<p>Wort <b>fett</b></p>" * 330_000)
    site.page("/pdf", pdf(*["Some words"] * 2_000), content_type="application/pdf")
    codes, peak, most = peak_of(site, [*["/wide"] * 7, "/tags", "/tags", "/pdf"], memory)
    assert (codes, most) == (["done"] * 10, 2)
    assert peak < memory, peak


@pytest.mark.shows("B59")
def test_the_largest_uploads_and_pages_fit_the_function(site: Site, tmp_path: Path) -> None:
    """One upload is in memory at a time, beside nine pages of the largest size."""
    memory = template()["Resources"]["ScraperWorker"]["Properties"]["MemorySize"]
    largest = ScraperWorkerSettings.model_fields["max_content_bytes"].default
    wide = "word \U0001f600 text "
    page = "<!doctype html><title>T</title><p>" + wide * ((largest - 100) // len(wide.encode()))
    site.page("/wide", page)
    upload, text = tmp_path / "upload.pdf", tmp_path / "upload.txt"
    picture = random.Random(1).randbytes(MAX_UPLOAD_BYTES - 1_000_000)
    upload.write_bytes(pdf(*["Some words"] * 1_000, beside=picture))
    text.write_bytes(b"word " * (MAX_UPLOAD_BYTES // 5))
    codes, peak, most = peak_of(site, [*["/wide"] * 5, *[f"@{upload}"] * 3, *[f"@{text}"] * 2], memory)
    assert (codes, most) == (["content_too_large"] * 2 + ["done"] * 8, 2)
    assert peak < memory, peak
