"""Changed code is served by the next invocation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.integration.compute.harness import Lab, answer, call, until, value

VERSIONED = """
import os
from part import VERSION

def handler(event, context):
    return [VERSION, os.getpid()]
"""


async def changes_to(read: Callable[[], Awaitable[Any]], expected: object) -> None:
    """Invoke until the result is the expected one; code is checked at most once in 100 ms."""
    deadline = asyncio.get_running_loop().time() + 4.0
    while (found := await read()) != expected:
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.02)


async def test_a_changed_file_of_the_function_is_served(lab: Lab) -> None:
    spec = lab.function(VERSIONED)
    lab.write("code/fn/part.py", "VERSION = 1\n")
    host = await lab.start(spec)
    version, pid = await answer(host)
    assert version == 1
    assert (await answer(host)) == [1, pid]

    async def read() -> Any:
        return (await answer(host))[0]

    # Same length, and within a second of the last: bytecode caches would not notice the change.
    for number in (2, 3, 4):
        lab.write("code/fn/part.py", f"VERSION = {number}\n")
        await changes_to(read, number)
    assert (await answer(host))[1] != pid
    assert host.stats()["fn"].environments == 1


async def test_a_changed_package_of_a_layer_is_served_to_every_function(lab: Lab) -> None:
    code = "import mill.part\n\ndef handler(event, context):\n    return mill.part.VERSION\n"
    layer = lab.folder / "layer"
    lab.write("layer/python/mill/__init__.py", "")
    lab.write("layer/python/mill/part.py", "VERSION = 1\n")
    specs = [lab.function(code, name, layer_dirs=(layer,)) for name in ("one", "two")]
    host = await lab.start(*specs, watched_packages=("mill",))
    for name in ("one", "two"):
        assert await answer(host, function=name) == 1
    lab.write("layer/python/mill/part.py", "VERSION = 2\n")
    for name in ("one", "two"):

        async def read(name: str = name) -> Any:
            return await answer(host, function=name)

        await changes_to(read, 2)


async def test_other_packages_of_a_layer_are_not_watched(forking: Lab) -> None:
    code = "import third\nimport os\n\ndef handler(event, context):\n    return os.getpid()\n"
    forking.write("layer/python/third.py", "VERSION = 1\n")
    spec = forking.function(code, layer_dirs=(forking.folder / "layer",))
    host = await forking.start(spec, watched_packages=("mill",))
    pid = await answer(host)
    forking.write("layer/python/third.py", "VERSION = 22\n")
    await asyncio.sleep(0.15)  # longer than the watch's interval
    assert await answer(host) == pid


async def test_a_new_and_a_removed_file_count_as_a_change(forking: Lab) -> None:
    code = """
        try:
            from optional import NAME
        except ImportError:
            NAME = None

        def handler(event, context):
            return NAME
    """
    host = await forking.start(forking.function(code))
    assert await answer(host) is None

    async def read() -> Any:
        return await answer(host)

    file = forking.write("code/fn/optional.py", "NAME = 'here'\n")
    await changes_to(read, "here")
    file.unlink()
    await changes_to(read, None)


async def test_an_invocation_ends_with_the_code_it_began_with(lab: Lab) -> None:
    waiting = """
        import os
        import time
        VERSION = 1

        def handler(event, context):
            open(event["began"], "w").close()
            while not os.path.exists(event["until"]):
                time.sleep(0.005)
            return VERSION
    """
    host = await lab.start(lab.function(waiting))
    began, go = lab.folder / "began", lab.folder / "go"
    running = asyncio.ensure_future(call(host, {"began": str(began), "until": str(go)}))
    await until(began.exists)
    lab.function("def handler(event, context):\n    return 2\n")

    async def read() -> Any:
        return value(await host.invoke("fn", b'{"began": "/dev/null", "until": "/dev/null"}'))

    await changes_to(read, 2)
    go.touch()
    assert value(await running) == 1
    await changes_to(read, 2)
    await until(lambda: host.stats()["fn"].environments == 1)


async def test_without_hot_reload_a_process_stays(forking: Lab) -> None:
    spec = forking.function(VERSIONED)
    forking.write("code/fn/part.py", "VERSION = 1\n")
    host = await forking.start(spec, hot_reload=False)
    found = await answer(host)
    forking.write("code/fn/part.py", "VERSION = 22\n")
    await asyncio.sleep(0.15)  # longer than a watch's interval
    assert await answer(host) == found
