"""pip's settings, passed on to uv."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT
from tools.uv_environment import environment, pip_settings, uv_variables

LISTING = """\
:env:.cert='/etc/certificates.pem'
global.cert='/etc/older.pem'
global.extra-index-url='https://one.example.com/packages\\nhttps://two.example.com/packages'
global.index-url='https://mirror.example.com/packages'
install.find-links='/srv/one /srv/two'
freeze.timeout='10'
"""


def test_the_environment_is_stronger_than_files() -> None:
    settings = pip_settings(LISTING)
    assert settings["cert"] == "/etc/certificates.pem"
    assert settings["index-url"] == "https://mirror.example.com/packages"
    assert "timeout" not in settings  # it is another command's


def test_settings_become_variables() -> None:
    variables = uv_variables(
        pip_settings(LISTING) | {"proxy": "http://proxy.example.com:3128", "no-index": "true"}
    )
    assert variables["UV_DEFAULT_INDEX"] == "https://mirror.example.com/packages"
    assert variables["UV_INDEX"] == "https://one.example.com/packages https://two.example.com/packages"
    assert variables["UV_FIND_LINKS"] == "/srv/one,/srv/two"
    assert variables["SSL_CERT_FILE"] == "/etc/certificates.pem"
    assert variables["HTTPS_PROXY"] == "http://proxy.example.com:3128"
    assert variables["UV_NO_INDEX"] == "1"


def test_without_settings_uv_gets_no_network_variables() -> None:
    assert not {"UV_DEFAULT_INDEX", "SSL_CERT_FILE", "HTTPS_PROXY"} & uv_variables({}).keys()


def test_what_the_user_set_for_uv_stays() -> None:
    assert (
        environment(own={"UV_DEFAULT_INDEX": "https://own.example.com"})["UV_DEFAULT_INDEX"]
        == "https://own.example.com"
    )


def test_a_pip_configuration_reaches_a_command(tmp_path: Path) -> None:
    configuration = tmp_path / "pip.conf"
    configuration.write_text("[global]\nindex-url = https://mirror.example.com/packages\n", encoding="utf-8")
    show = "import os; print(os.environ['UV_DEFAULT_INDEX'])"
    done = subprocess.run(
        [sys.executable, "-m", "tools.uv_environment", sys.executable, "-c", show],
        cwd=ROOT,
        env={"PIP_CONFIG_FILE": str(configuration)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "https://mirror.example.com/packages"
