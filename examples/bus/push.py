"""Pushes events to an event bus over HTTP: a new client, a topic of its own, and what has happened to orders.

    ONCEWAY_BUS_ROOT_KEY=... python examples/bus/push.py [URL] [TOPIC]

Needs nothing of Onceway. A push that is not answered with 204 is pushed again.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8443"
TOPIC = sys.argv[2] if len(sys.argv) > 2 else "orders"


def post(path: str, user: str, body: dict) -> bytes:
    headers = {"Authorization": "Basic " + b64encode(f"{user}:".encode()).decode()}
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read()


def push(token: str, event: dict) -> None:
    while True:
        try:
            post(f"/topics/{TOPIC}", token, event)
            return
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
        time.sleep(1)


token = json.loads(post("/api_tokens", os.environ["ONCEWAY_BUS_ROOT_KEY"], {"name": "shop"}))["token"]
push(token, {"type": "noop", "url": "https://shop.example/orders"})  # the topic is there
print("the topic is there, press return to push", flush=True)
sys.stdin.readline()
for number in range(3):
    push(token, {"type": "create", "url": f"https://shop.example/orders/{number}", "data": {"total": 10 * number}})
print("pushed 3 events")
