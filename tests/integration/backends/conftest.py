"""Backends as real processes, each with its files in a temporary folder and stopped by its own id."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from local.backends.model_files import MODEL_ID
from local.backends.postgres import EmbeddedPostgres
from local.backends.process import Backend, free_port, stand_in

StartServer = Callable[..., EmbeddedPostgres]
StartMembership = Callable[..., Any]

KEYS = {
    "key-of-ann": {
        "caller_id": "ann",
        "caller_type": "service",
        "tier": "gold",
        "rate_limits": {"per_minute": 60},
        "scopes": ["read"],
    },
    "key-of-bob": None,
}


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """Yield one server for the tests that only need databases."""
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedPostgres(Path(folder))
        server.start()
        yield server
        server.delete()


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[StartServer]:
    """Yield a factory of servers by state folder; their data is deleted after the test."""
    with ExitStack() as stack:

        def make(state_dir: Path | None = None, **options: Any) -> EmbeddedPostgres:
            server = EmbeddedPostgres(state_dir or tmp_path / "state", **options)
            stack.callback(server.delete)
            return server

        yield make


async def _start(name: str, log_path: Path, *options: str) -> tuple[Backend, httpx.AsyncClient]:
    port = free_port()
    backend = stand_in(name, port, *options, log_path=log_path)
    await backend.start()
    return backend, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10)


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def embeddings_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Yield the URL of the embedding endpoint, one process for all tests."""
    backend, client = await _start("embeddings", tmp_path_factory.mktemp("embeddings") / "log")
    await client.aclose()
    yield str(client.base_url)
    await backend.stop()


@pytest_asyncio.fixture
async def embeddings(embeddings_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of the embedding endpoint, with its fault mode reset."""
    async with httpx.AsyncClient(base_url=embeddings_url, timeout=10) as client:
        await client.post("/control", json={"mode": "ok"})
        yield client


@pytest.fixture
def embed(embeddings: httpx.AsyncClient) -> Callable[..., Any]:
    """POST /v1/embeddings with the model's name filled in."""

    def post(given: object, **rest: Any) -> Any:
        body = json.dumps(
            {"model": MODEL_ID, "input": given, **rest}
        )  # escaped: half characters can be sent too
        return embeddings.post("/v1/embeddings", content=body)

    return post


@dataclass(frozen=True)
class Membership:
    """A running Membership stand-in and the file with its keys."""

    client: httpx.AsyncClient
    keys_file: Path

    async def auth(self, key: str) -> httpx.Response:
        return await self.client.post("/auth", json={"api_key": key})

    async def control(self, **body: Any) -> None:
        (await self.client.post("/control", json=body)).raise_for_status()

    async def state(self) -> dict[str, Any]:
        state: dict[str, Any] = (await self.client.get("/control")).json()
        return state


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def shared_membership(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, Path]]:
    """Yield one process for the tests that need no options of their own."""
    folder = tmp_path_factory.mktemp("membership")
    keys_file = folder / "keys.json"
    keys_file.write_text(json.dumps(KEYS))
    backend, client = await _start("membership", folder / "log", "--keys", str(keys_file))
    await client.aclose()
    yield str(client.base_url), keys_file
    await backend.stop()


@pytest_asyncio.fixture
async def membership(shared_membership: tuple[str, Path]) -> AsyncIterator[Membership]:
    """Yield the stand-in with KEYS, in its last phase, with the repaired codes and no fault mode."""
    url, keys_file = shared_membership
    keys_file.write_text(json.dumps(KEYS))
    async with httpx.AsyncClient(base_url=url, timeout=10) as client:
        running = Membership(client, keys_file)
        await running.control(mode="ok", phase=4, codes="fixed")
        yield running


@pytest_asyncio.fixture
async def start_membership(tmp_path: Path) -> AsyncIterator[StartMembership]:
    """Yield a factory for stand-ins with other options."""
    async with AsyncExitStack() as stack:

        async def start(*options: str) -> Membership:
            keys_file = tmp_path / "keys.json"
            keys_file.write_text(json.dumps(KEYS))
            backend, client = await _start("membership", tmp_path / "log", "--keys", str(keys_file), *options)
            stack.push_async_callback(backend.stop)
            stack.push_async_callback(client.aclose)
            return Membership(client, keys_file)

        yield start


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def site_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Yield the URL of the built-in site, one process for all tests."""
    backend, client = await _start("site", tmp_path_factory.mktemp("site") / "log")
    await client.aclose()
    yield str(client.base_url)
    await backend.stop()


@pytest_asyncio.fixture
async def site(site_url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=site_url, timeout=10) as client:
        yield client


@pytest_asyncio.fixture
async def folder_site(tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Path]]:
    """Yield a factory for sites of a test's own folder."""
    root = tmp_path / "root"
    root.mkdir()
    backend, client = await _start("site", tmp_path / "log", "--root", str(root))
    yield client, root
    await client.aclose()
    await backend.stop()


async def until(condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
    """Wait for a condition of another process or thread."""
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.01)
