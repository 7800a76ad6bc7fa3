"""Environment of a function's process: its own variables, folders and modules, and nothing of the host's."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.compute.harness import ACCOUNT, REGION, Lab, answer, until

LOOK = """
import os
import sys
import tempfile
import time

def open_files():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink("/proc/self/fd/" + name))
        except OSError:
            pass
    return found

def handler(event, context):
    found = {
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "path": sys.path,
        "modules": sorted(sys.modules),
        "open": open_files(),
        "temp": tempfile.gettempdir(),
        "zone": time.tzname[0],
        "remaining": context.get_remaining_time_in_millis(),
        "context": [
            context.function_name, context.function_version, context.memory_limit_in_mb,
            context.invoked_function_arn, context.log_group_name, context.aws_request_id,
        ],
    }
    if event and "file" in event:
        with open(os.path.join(os.environ["HOME"], event["file"]), "w") as file:
            file.write("kept for the next call")
    found["home"] = os.listdir(os.environ["HOME"])
    return found
"""
KNOWN = {
    "PATH", "LANG", "LC_CTYPE", "SSL_CERT_FILE", "SSL_CERT_DIR", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "AWS_LAMBDA_FUNCTION_VERSION",
    "AWS_LAMBDA_INITIALIZATION_TYPE", "AWS_LAMBDA_LOG_GROUP_NAME", "AWS_LAMBDA_LOG_STREAM_NAME", "AWS_REGION",
    "AWS_DEFAULT_REGION", "LAMBDA_TASK_ROOT", "TZ", "_HANDLER", "AWS_LAMBDA_RUNTIME_API", "PYTHONPATH",
    "PYTHONDONTWRITEBYTECODE", "HOME", "TMPDIR", "_X_AMZN_TRACE_ID",
}  # fmt: skip


async def test_no_variable_of_the_host_reaches_a_function(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AWS_PROFILE",
        "AWS_SESSION_TOKEN",
        "DATABASE_URL",
        "PYTHONSTARTUP",
        "HOST_ONLY",
        "HTTP_PROXY",
    ):
        monkeypatch.setenv(name, "of-the-host")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-host")
    host = await lab.start(lab.function(LOOK, environment={"TABLE": "jobs"}))
    seen = (await answer(host))["env"]
    assert set(seen) - KNOWN == {"TABLE"}
    assert "of-the-host" not in seen.values()
    assert (seen["TABLE"], seen["AWS_ACCESS_KEY_ID"]) == ("jobs", "test")


async def test_the_reserved_variables_and_the_context_are_the_functions(lab: Lab) -> None:
    host = await lab.start(lab.function(LOOK, memory_mb=192, timeout_s=7))
    seen = await answer(host)
    env = seen["env"]
    assert env["AWS_REGION"] == env["AWS_DEFAULT_REGION"] == REGION
    assert (env["AWS_LAMBDA_FUNCTION_NAME"], env["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]) == ("fn", "192")
    assert env["_HANDLER"] == "app.handler"
    assert "AWS_EXECUTION_ENV" not in env
    assert seen["zone"] == "UTC"
    assert 5000 < seen["remaining"] <= 7000
    arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:fn"
    assert seen["context"][:5] == ["fn", "$LATEST", "192", arn, "/aws/lambda/fn"]
    assert host.arn("FnFunction") == arn


async def test_settings_of_the_host_win_over_the_templates_and_reserved_ones_over_both(forking: Lab) -> None:
    given = {"PLACE": "template", "ONLY": "template", "AWS_LAMBDA_FUNCTION_NAME": "other"}
    extra = {"PLACE": "host", "AWS_REGION": "mars-1"}
    host = await forking.start(forking.function(LOOK, environment=given), extra=extra)
    env = (await answer(host))["env"]
    assert (env["PLACE"], env["ONLY"]) == ("host", "template")
    assert (env["AWS_LAMBDA_FUNCTION_NAME"], env["AWS_REGION"]) == ("fn", REGION)


async def test_changed_settings_reach_the_next_invocation(forking: Lab) -> None:
    host = await forking.start(forking.function(LOOK), extra={"PLACE": "before"})
    assert (await answer(host))["env"]["PLACE"] == "before"
    host.update_environment({"PLACE": "after"})
    assert (await answer(host))["env"]["PLACE"] == "after"


async def test_the_working_directory_is_the_code_and_the_path_has_it_before_the_layers(lab: Lab) -> None:
    layers = (lab.folder / "layers" / "base", lab.folder / "layers" / "more")
    spec = lab.function(LOOK, layer_dirs=layers)
    host = await lab.start(spec)
    seen = await answer(host)
    wanted = [str(spec.code_dir), *(str(layer / "python") for layer in layers)]
    assert seen["cwd"] == str(spec.code_dir)
    assert seen["path"][:3] == wanted


async def test_nothing_of_the_hosts_is_loaded_or_open(lab: Lab) -> None:
    with (lab.folder / "the host's").open("w") as opened:
        os.set_inheritable(opened.fileno(), True)
        host = await lab.start(lab.function(LOOK))
        seen = await answer(host)
    assert not [name for name in seen["modules"] if name.split(".")[0] in ("local", "indexmill", "pytest")]
    assert [name for name in seen["open"] if name.startswith("/") and not name.startswith("/dev/")] == []
    kinds = Counter(name.split(":")[0] for name in seen["open"])
    assert kinds["pipe"] == 2  # stdout and stderr
    assert kinds["socket"] <= 3  # the runtime client's connection, and the pair that wakes it


async def test_each_process_has_a_private_folder_that_goes_with_it(lab: Lab) -> None:
    host = await lab.start(lab.function(LOOK))
    seen = await answer(host, {"file": "notes.txt"})
    home = Path(seen["env"]["HOME"])
    assert seen["temp"] == seen["env"]["TMPDIR"] == str(home)
    assert (await answer(host))["home"] == ["notes.txt"]
    host.update_environment({})
    again = await answer(host)
    assert again["home"] == []
    assert again["env"]["HOME"] != str(home)
    await until(lambda: not home.exists())
    await host.stop()
    assert not home.parent.exists()


async def test_the_functions_modules_win_over_preloaded_ones(forking: Lab) -> None:
    code = (
        "import boto3\n\ndef handler(event, context):\n    return [boto3.__file__, hasattr(boto3, 'OWN')]\n"
    )
    spec = forking.function(code)
    forking.write("code/fn/boto3/__init__.py", "OWN = True\n")
    host = await forking.start(spec, preload=("boto3",))
    assert await answer(host) == [str(spec.code_dir / "boto3" / "__init__.py"), True]


async def test_preloaded_modules_are_no_imports_and_a_missing_one_does_not_matter(
    forking: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    host = await forking.start(forking.function(LOOK), preload=("fractions", "no_such_module"))
    assert "fractions" not in (await answer(host))["modules"]
    assert "could not preload no_such_module" in caplog.text


async def test_a_folder_before_the_functions_own_may_bring_a_sitecustomize(lab: Lab) -> None:
    lab.write("first/sitecustomize.py", "import os\nos.environ['CUSTOMISED'] = 'yes'\n")
    lab.write("broken/sitecustomize.py", "raise ValueError('shown and ignored')\n")
    host = await lab.start(lab.function(LOOK), path_prefix=(lab.folder / "first",))
    assert (await answer(host))["env"]["CUSTOMISED"] == "yes"
    other = await lab.start(lab.function(LOOK), path_prefix=(lab.folder / "broken",))
    assert "CUSTOMISED" not in (await answer(other))["env"]


async def test_no_bytecode_is_written_beside_the_code(forking: Lab) -> None:
    spec = forking.function(LOOK)
    forking.write("code/fn/part.py", "VALUE = 1\n")
    host = await forking.start(spec)
    await answer(host)
    assert sorted(path.name for path in spec.code_dir.iterdir()) == ["app.py", "part.py"]
