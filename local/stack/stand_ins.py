"""Stand-ins of a stack for external services, and the parameters that point to them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from local.backends.model_files import DIMENSIONS, MODEL_ID, tokenizer_path
from local.backends.process import free_port, stand_in
from local.stack.runtime import environments
from local.stack.services import StandIn
from local.stack.state import Keys, StateFolder

_WINDOW_PER_CORE: Final = 20
_REQUEST_LIMITS: Final = (
    *("RateFree", "RatePro", "RateEnterprise"),
    *("FairShareScraper", "FairShareChunking", "FairShareEmbedding", "FairShareOrchestrator"),
)
"""On a laptop requests are not limited."""


class StandIns:
    """Stand-ins that no parameter replaces; not started yet."""

    def __init__(self, state: StateFolder, overrides: Mapping[str, str], site_root: Path | None) -> None:
        """`overrides` are the user's template parameters, `site_root` a folder to serve as the web site."""
        self._state, self._overrides = state, overrides
        state.logs.mkdir(parents=True, exist_ok=True)
        self.services: list[StandIn] = []
        self.addresses = {"site": self._add("site", *_site_options(site_root))}
        """Addresses of the site, Membership and the embeddings, stand-in or not."""
        if "MembershipUrl" in overrides:
            self.addresses["membership"] = overrides["MembershipUrl"]
        else:
            self.addresses["membership"] = self._add("membership", "--keys", str(state.membership_keys))
        if "EmbeddingBaseUrl" in overrides:
            self.addresses["embeddings"] = overrides["EmbeddingBaseUrl"]
        else:
            self.addresses["embeddings"] = self._add("embeddings") + "/v1"

    def parameters(self, keys: Keys) -> dict[str, str]:
        """Return the parameters that the template cannot know; the user's parameters override them."""
        automatic = {
            "MembershipUrl": self.addresses["membership"],
            "TokenizerFile": str(tokenizer_path()),
            "DomainRates": "*=1:3,127.0.0.1=unlimited",
            "AllowedPrivateHosts": self.addresses["site"].removeprefix("http://"),
            "InternalKeyHashes": hashlib.sha256(keys.ops_key.encode()).hexdigest()[:16],
            # What the cores can run at once; more would only wait longer, ahead of others' jobs.
            "DispatchWindow": str(_WINDOW_PER_CORE * max(2, os.cpu_count() or 1)),
            # One environment is reserved for clients that are asked to reconnect later.
            "StreamWindows": str(environments() - 1),
            # Pages that a developer's own server serves.
            "AllowedOrigins": "http://localhost:*,http://127.0.0.1:*",
            **dict.fromkeys(_REQUEST_LIMITS, "unlimited"),
        }
        if "EmbeddingBaseUrl" not in self._overrides:
            automatic["EmbeddingBaseUrl"] = self.addresses["embeddings"]
            automatic |= {"EmbeddingModel": MODEL_ID, "EmbeddingDimension": str(DIMENSIONS)}
        return automatic

    def _add(self, name: str, *options: str) -> str:
        port = free_port(self._state.last_port(name))
        self._state.keep_port(name, port)
        process = stand_in(name, port, *options, log_path=self._state.logs / f"{name}.log")
        self.services.append(StandIn(process))
        return f"http://127.0.0.1:{port}"


def _site_options(root: Path | None) -> tuple[str, ...]:
    return () if root is None else ("--root", str(root.resolve()))
