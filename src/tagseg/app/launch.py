"""Start the page: `tagseg app`."""

import os
import socket
import sys
import webbrowser
from contextlib import suppress
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer

from tagseg._hub import DEFAULT_MODEL
from tagseg.errors import ConfigError
from tagseg.predict.predictor import load

LOCAL_HOST = "127.0.0.1"
DEFAULT_PORT = 7860
_MODULES = ("gradio", "fastapi", "uvicorn", "multipart", "pycocotools")  # of the extra


def serve_app(
    run: str | Path | None = None,
    *,
    model: str | Path | None = None,
    host: str = LOCAL_HOST,
    port: int = DEFAULT_PORT,
    password: str | None = None,
    device: str = "auto",
    open_browser: bool = False,
) -> None:
    """Serve the page until Ctrl-C.

    Args:
        run: Run folder to look at; its model is the page's model by default.
        model: A run folder, a model file, or `default`: the model that comes with tagseg.
        host: Address to serve at. Any but this machine's own needs a password.
        port: Port to serve at; 0 takes a free one.
        password: Password that the page and programs must give, under any user name.
        device: Device, as in `load`.
        open_browser: Open the page in a browser.
    """
    require_extra()
    is_local = _is_local(host)
    if not (is_local or password):
        raise ConfigError(f"{host} is reached by other machines, which needs a password", "set one with {password}")
    with _listen(host, port) as listener, TemporaryDirectory(prefix="tagseg-app-") as folder:
        # Gradio reads these when it is imported.
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        os.environ["GRADIO_TEMP_DIR"] = folder
        import uvicorn

        from tagseg.app.context import Context, ModelQueue
        from tagseg.app.server import build_server

        path = str(model or run or DEFAULT_MODEL)
        context = Context(
            load(path, device=device), path, Path(run) if run is not None else None, ModelQueue(), is_local=is_local
        )
        server = uvicorn.Server(
            uvicorn.Config(
                build_server(context, password=password),
                log_level="warning",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=1,  # the page keeps a connection open for its events
            )
        )
        url = _url(host, listener.getsockname()[1])
        print(f"Open in a browser: {url} (Ctrl-C stops)", flush=True)
        if open_browser and _has_display():
            Timer(0.5, webbrowser.open, [url]).start()
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def require_extra() -> None:
    """Raise a `ConfigError` unless the extra is installed."""
    missing = [name for name in _MODULES if find_spec(name) is None]
    if missing:
        raise ConfigError(f"the page needs {', '.join(missing)}", "install tagseg[app]")


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=256)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"{host}:{port}: cannot be served at ({error})", "choose another port with {port}; 0 takes a free one"
        ) from error


def _url(host: str, port: int) -> str:
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _has_display() -> bool:
    """Whether a browser has a screen; without one, a browser in text mode would take over the terminal."""
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
