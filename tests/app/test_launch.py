"""`tagseg app`: its errors, and a server of its own from start to Ctrl-C."""

import os
import re
import signal
import socket
import subprocess
import sys
from base64 import b64encode

import pytest

from tagseg.app.launch import serve_app
from tagseg.errors import ConfigError
from tests.app.requests import request


def test_another_address_needs_a_password() -> None:
    with pytest.raises(ConfigError, match=r"^0\.0\.0\.0 is reached by other machines, which needs a password; set one"):
        serve_app(host="0.0.0.0")


def test_a_port_that_is_taken_or_an_address_that_is_not_ours() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(ConfigError, match="cannot be served at .* choose another port with port=") as error,
    ):
        serve_app(port=other.getsockname()[1])
    assert "choose another port with --port" in error.value.for_cli()
    with pytest.raises(ConfigError, match="cannot be served at"):
        serve_app(host="192.0.2.1", password="sesame")


@pytest.mark.slow
def test_serve_with_a_password_until_ctrl_c() -> None:
    command = [sys.executable, "-m", "tagseg", "app", "--no-browser", "--port", "0", "--host", "0.0.0.0"]
    environment = {**os.environ, "TAGSEG_PASSWORD": "sesame"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            match = re.search(r":(\d+) \(Ctrl-C stops\)", process.stdout.readline())
            assert match is not None
            url = f"http://127.0.0.1:{match[1]}"
            assert request(url, "GET", "/health").status == 401
            authorization = {"Authorization": f"Basic {b64encode(b'me:sesame').decode()}"}
            assert request(url, "GET", "/health", headers=authorization).json()["status"] == "ok"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert "Traceback" not in (process.stderr.read() if process.stderr else "")
        finally:
            process.kill()
