"""Index a URL into the corpus "demo" and search it.

`.venv/bin/python examples/client_demo.py GATEWAY API_KEY URL QUESTION`
"""

from __future__ import annotations

import sys

from indexmill.client import Client


def main() -> int:
    """Submit, wait, search, print."""
    if len(sys.argv[1:]) != 4:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    gateway, api_key, url, question = sys.argv[1:]
    with Client(gateway, api_key) as client:
        accepted = client.submit(url, corpus_name="demo")
        (job,) = client.wait([accepted.job_id], timeout_s=120)
        sys.stdout.write(f"{job.user_message}\n")
        if job.error:
            return 1
        for hit in client.search(question, corpus_name="demo", top_k=3).results:
            sys.stdout.write(f"{hit.score:.3f}  {hit.source_url}\n       {hit.text[:120]!r}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
