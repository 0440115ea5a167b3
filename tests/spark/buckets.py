"""moto's server of the S3 API, with the faults that a test asks for, and its death."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

from chaos.live.ports import free_port

pytest.importorskip("moto")
pytest.importorskip("obstore")

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Server:
    """`fault`: asked for each request's method and path; "slow": 503, "lost": done and not answered, "reset": the same
    with a reset in place of an end, "silent": done, and neither answered nor ended before the client gives up, "": served."""

    def __init__(self, bucket: str = "logs") -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self.fault: Callable[[str, str], str] = lambda method, path: ""
        self.served: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._app = DomainDispatcherApplication(create_backend_app)
        self._port = free_port()
        self._server: Any = None
        self.start()
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
        self._make(bucket)

    def _make(self, bucket: str) -> None:
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request("POST", "/moto-api/reset")  # moto's servers of one process hold the same
        assert connection.getresponse().read()
        connection.request(
            "PUT", f"/{bucket}", headers={"Authorization": "AWS4-HMAC-SHA256 Credential=test/x/us-east-1/s3/x"}
        )
        assert connection.getresponse().status == 200
        connection.close()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        fault = self.fault(method, path)
        self.served[method] += 1
        if fault:
            self.faults[fault] += 1
        if fault == "slow":
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(
                "503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(SLOW_DOWN)))]
            )
            return [SLOW_DOWN]
        if fault in ("lost", "reset", "silent"):
            list(self._app(environ, lambda status, headers, *rest: lambda data: None))
            connection: socket.socket = environ["werkzeug.socket"]
            if fault == "silent":
                connection.recv(1)
            if fault == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                os.close(connection.detach())
            else:
                connection.shutdown(socket.SHUT_RDWR)
            return []
        answer: Iterable[bytes] = self._app(environ, start_response)
        return answer

    def start(self) -> None:
        """What it held is still there: the test's process has it."""
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            def log(self, *arguments: Any) -> None:
                pass

        self._server = make_server("127.0.0.1", self._port, self, threaded=True, request_handler=Quiet)
        self._thread = threading.Thread(target=self._server.serve_forever, name="moto", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()  # it closes the socket
