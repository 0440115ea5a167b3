"""A process that passes for a router: `python fake_router.py ADMIN_PORT NAME BEHAVIOUR JSON-STATUS`.

BEHAVIOUR: good (answers until SIGTERM), stubborn (ignores SIGTERM), bad (ends with 2 after a last word), or
dies (answers the first question, then ends with 3).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


def main(port: str, name: str, behaviour: str, status: str) -> None:
    if behaviour == "bad":
        print(f"topology.yaml: routers.{name}.amqp: port 127.0.0.1:5672 is in use; stop it", flush=True)
        sys.exit(2)
    document = {**json.loads(status), "name": name, "pid": os.getpid()}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if behaviour == "dies":
                self.wfile.flush()
                os._exit(3)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server = HTTPServer(("127.0.0.1", int(port)), Answer)
    print(f"[{name}] listening", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
