"""The console: who is let in, what a router's own shows, and what a browser makes of a network."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
import yaml

import onceway
from chaos.live.ports import free_port
from onceway.base.loop import run
from onceway.cli.sockets import sockets_by_url
from onceway.console import PAGES
from onceway.console.served import Served
from onceway.operate.probe import Probe
from onceway.serve.ports import admin_url, store_urls
from onceway.topology import load
from tests.chromium import Browser, browser, chromium
from tests.live import LiveNetwork, wait_until
from tests.needs import CHROMIUM
from tests.pki import Pki

pytestmark = pytest.mark.timeout(240)
ORDERS = [{"match": "orders", "subscription_timeout": "60s"}]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    with LiveNetwork(tmp_path_factory.mktemp("console"), ("a", "b"), [("a", "b", 3)], ORDERS) as started:
        yield started.start()


@asynccontextmanager
async def served(network: LiveNetwork) -> AsyncIterator[tuple[str, str]]:
    """The console of all its routers: where it listens, and the URL that lets one in."""
    read = load(network.topology_path)
    urls = {name: admin_url(read, name) for name in read.routers}
    by_url = sockets_by_url(read, network.directory / "state")
    sockets = {name: by_url[url] for name, url in urls.items()}
    async with Probe(30.0, by_url) as probe:
        console = Served(read.network, read.links, urls, sockets, probe, store_urls(read))
        url = await console.start(0)
        try:
            yield url.partition("/?")[0], url
        finally:
            await console.stop()


async def first_event(session: aiohttp.ClientSession, base: str) -> Any:
    async with session.get(f"{base}/console/events") as answer:
        assert answer.content_type == "text/event-stream"
        line = await answer.content.readline()
        assert line.startswith(b"data: ")
        return json.loads(line[6:])


async def test_the_admin_listener_of_a_router_shows_that_router(network: LiveNetwork) -> None:
    base = f"http://127.0.0.1:{network['a'].admin_port}"
    async with aiohttp.ClientSession() as session:
        for page in ("", *PAGES[1:]):
            async with session.get(f"{base}/console/{page}") as answer:
                text = await answer.text()
                assert answer.status == 200
                assert "default-src 'none'; script-src 'self'" in answer.headers["Content-Security-Policy"]
                assert answer.headers["X-Frame-Options"] == "DENY"
                for outside in ('src="http', 'href="http', "@import", "url(", "import(", "<style", " style="):
                    assert outside not in text, page
        view = await first_event(session, base)
        assert (view["network"], view["seen_from"], view["links"], view["acts"]) == (
            "live",
            "a",
            [["a", "b", 3]],
            [],
        )
        assert list(view["routers"]) == ["a"]
        assert view["routers"]["a"]["state"] == "ready"
        assert "listening" in [event for _, _, event, _ in view["routers"]["a"]["latest"]]
        async with session.get(f"{base}/console/well") as answer:
            well = await answer.json()
            assert (answer.headers["Cache-Control"], well["network"], well["seen_from"]) == ("no-store", "live", "a")
            states = {each["name"]: each["state"] for each in well["verdicts"]}
            assert (states["OncewayRouterDown"], states["OncewayClocksDiffer"]) == ("well", "unknown")
        async with session.get(f"{base}/console/address?name=none") as answer:
            assert await answer.json() == {"a": {}}
        async with session.get(f"{base}/console/address") as answer:
            assert answer.status == 400
        async with session.post(f"{base}/console/act", json={}) as answer:
            assert answer.status == 404  # it reads only


async def test_the_console_of_a_network_is_for_who_started_it(network: LiveNetwork) -> None:
    async with served(network) as (base, url), aiohttp.ClientSession() as stranger:
        for page in ("/", "/?key=x", "/console/", "/console/events", "/console/well.html", "/console/well"):
            async with stranger.get(base + page, allow_redirects=False) as answer:
                assert answer.status == 403, page
        async with stranger.get(url, headers={"Host": "evil.example:80"}) as answer:
            assert (answer.status, answer.content_type) == (421, "text/plain")
        jar = aiohttp.CookieJar(unsafe=True)  # for an address in place of a name
        async with aiohttp.ClientSession(cookie_jar=jar) as mine:
            async with mine.get(url) as answer:
                assert (answer.status, answer.url.path) == (200, "/console/")
            view = await first_event(mine, base)
            assert (view["seen_from"], view["acts"]) == ("", ["a", "b"])
            assert {name: one["state"] for name, one in view["routers"].items()} == {"a": "ready", "b": "ready"}
            undrain = {"router": "a", "page": "/undrain", "arguments": {}}
            for sent, origin, status in (
                (undrain, None, 403),
                (undrain, "http://evil.example", 403),
                ({**undrain, "page": "/reload"}, base, 404),
                ({**undrain, "router": "c"}, base, 403),
                ({"router": 1}, base, 400),
                (undrain, base, 409),
            ):
                headers = {} if origin is None else {"Origin": origin}
                async with mine.post(f"{base}/console/act", json=sent, headers=headers) as answer:
                    assert answer.status == status, (sent, origin)
                    said = await answer.text()
            assert "not being drained" in said


@pytest.mark.skipif(shutil.which("chromium") is None, reason=CHROMIUM)
def test_a_browser_shows_a_network_and_acts_on_it(tmp_path: Path) -> None:
    """It follows a message, a death and a drain; ONCEWAY_SCREENSHOTS names a directory for pictures to look at."""

    async def look(network: LiveNetwork, listening: str) -> None:
        async with (
            served(network) as (_, url),
            onceway.connect(network["a"].url, container="shop") as shop,
            onceway.connect(network["b"].url, container="billing") as billing,
            browser(listening) as page,
        ):
            subscriber = await billing.subscriber("orders", name="mail")
            publisher = await shop.publisher("orders")
            sent = asyncio.create_task(publisher.send(b"1"))
            delivery = await anext(aiter(subscriber))
            await page.look(1100, "light")
            await page.do("Page.navigate", url=url)
            await shows(page, "2 of 2 routers ready", "orders", "1 pub, 0 sub", "cost 3")
            await shows(page, "billing/mail", within="#lags")  # which has not accepted it
            assert not await without_a_name(page)
            assert await page.value(MANY_LINKS) < 50, "milliseconds, of which the eye sees nothing"
            light = await page.value("getComputedStyle(document.body).backgroundColor")
            await page.value("document.getElementById('scheme').click()")
            assert await page.value("getComputedStyle(document.body).backgroundColor") != light
            await picture(page, "dark")
            await page.value("[...document.querySelectorAll('#addresses button')].at(-1).click()")
            await shows(page, "shop/", "billing/mail", within="#address-dialog")
            await picture(page, "address")
            await page.value("document.querySelector('#address-dialog button').click()")
            await delivery.accept()
            await sent

            network.kill("b")
            await shows(page, "1 of 2 routers ready", "no answer", "trunk a - b is down")
            await shows(page, "does not answer", within="#waits")
            await picture(page, "death")
            network.spawn("b")
            await shows(page, "2 of 2 routers ready")
            await shows(page, "answers again", within="#events")

            await page.value("document.querySelector('#picture g').focus()")
            await page.do("Input.dispatchKeyEvent", type="keyDown", key="Enter", windowsVirtualKeyCode=13)
            await shows(page, "Router a", within="#router-dialog")
            await page.value("[...document.querySelectorAll('#router-dialog .acts button')].at(-1).click()")
            await shows(page, "Drain router a?", within="#ask")
            await page.value("document.querySelector('#ask [value=yes]').click()")
            await shows(page, "draining", "drained", any_of=True, within="#routers")

    with LiveNetwork(tmp_path / "net", ("a", "b"), [("a", "b", 3)], ORDERS) as network:
        network.start()
        with chromium(tmp_path / "profile") as listening:
            run(look(network, listening))
            drained = wait_until(lambda: network["a"].status()["drain"], "router a is drained")
            assert drained is not None


async def test_alerts_fire_on_the_page_when_they_are_brought_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock by which they have held goes faster: by 12 s at each question; all else is real."""
    network = LiveNetwork(
        tmp_path / "net", ("a", "b"), [("a", "b", 3)], [
            {"match": "away", "subscription_timeout": "1h"}, {"match": "lost", "subscription_timeout": "100ms"},
            {"match": "*"},
        ], {"presettled_queue": 1},
    )  # fmt: skip
    pem = Pki(tmp_path / "pki").certificate("a", "127.0.0.1", days=5)
    document = network.topology()
    document["limits"] = {"links": 5}
    document["tls"] = {"own": {"certificate": str(pem)}}
    document["routers"]["a"] |= {"amqps": free_port(), "tls": "own"}
    network.topology_path.write_text(yaml.safe_dump(document))
    looks = count()
    monkeypatch.setattr("onceway.console.JUDGED_S", 0.0)
    monkeypatch.setattr("onceway.operate.probe.time", SimpleNamespace(time=lambda: time.time() + 12.0 * next(looks)))
    with network:
        network.start()
        async with (
            served(network) as (base, url),
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
        ):
            async with session.get(url) as answer:
                assert answer.status == 200

            async def fire(**where: str) -> None:
                """Until these alerts fire, each at this place."""
                async with asyncio.timeout(60):
                    while where:
                        async with session.get(f"{base}/console/well") as answer:
                            well = await answer.json()
                        for alert in well["verdicts"]:
                            name = alert["name"].removeprefix("Onceway")
                            places = [place for each in alert["findings"] for place in each["places"]]
                            if alert["state"] == "firing" and where.get(name) in places:
                                assert alert["remedy"]
                                assert alert["docs"].startswith("docs/")
                                del where[name]

            await fire(CertificateExpires="a")
            async with onceway.connect(network["a"].url) as client:
                jobs = await client.subscriber("jobs")
                sending = asyncio.create_task((await client.publisher("jobs")).send(b"1"))
                await (await anext(aiter(jobs))).reject(description="no such job")
                with pytest.raises(onceway.DeliveryRejected):
                    await sending
                await client.subscriber("fast", guarantee="at-most-once", credit=1)
                fast = await client.publisher("fast", guarantee="at-most-once")
                for number in range(20):
                    await fast.send(b"%d" % number)
                await client.publisher("held")
                refused = asyncio.create_task(client.publisher("one-too-many"))  # which tries again
                await fire(MessagesRejected="a", MessagesDropped="a", LimitReached="a")
                refused.cancel()


@pytest.mark.skipif(shutil.which("chromium") is None, reason=CHROMIUM)
def test_the_page_of_alerts_says_what_to_do_and_breaks_no_word(tmp_path: Path) -> None:
    async def look(network: LiveNetwork, listening: str) -> None:
        async with served(network) as (_, url), browser(listening) as page:
            await page.do("Page.navigate", url=url)
            await shows(page, "1 of 2 routers ready")
            await page.value("document.querySelector('a[href=\"well.html\"]').click()")
            await shows(page, "OncewayBusDiskFills", "a bus is asked by Prometheus alone", within="#unknown")
            await shows(page, "Router b does not answer", "pending", "== 0 for 1m", within="#firing")
            await shows(page, "look at its process and its log", "docs/operating/monitor.md", within="#firing")
            await shows(page, "perhaps not", "no: ", any_of=True, within="#state")
            await shows(page, "router b does not answer: nobody listens", within="#unknown")
            assert await page.value("document.getElementById('well').childElementCount") == 0  # b may not be well
            assert not await without_a_name(page, 2)
            for width in (390, 768, 1280):
                await page.look(width, "light")
                assert await page.value(BROKEN_WORDS) == "", width
                assert await page.value("document.documentElement.scrollWidth") <= width
                await picture(page, f"well-{width}")

    with LiveNetwork(tmp_path / "net", ("a", "b"), [("a", "b", 3)], ORDERS) as network:
        network.start("a")
        with chromium(tmp_path / "profile") as listening:
            run(look(network, listening))


@pytest.mark.skipif(shutil.which("chromium") is None, reason=CHROMIUM)
def test_no_word_is_broken_on_a_phone_a_tablet_or_a_screen(network: LiveNetwork, tmp_path: Path) -> None:
    """Nor is the page wider than the screen: what is wide scrolls in itself."""

    async def look(listening: str) -> None:
        long = "orders.of-all-regions.and-what-became-of-them.in-the-years-since-2019"
        async with (
            served(network) as (_, url),
            onceway.connect(network["a"].url, container=f"{long}.shop") as shop,
            onceway.connect(network["b"].url, container=f"{long}.billing") as billing,
            browser(listening) as page,
        ):
            subscriber = await billing.subscriber(long, name="mail")
            sent = asyncio.create_task((await shop.publisher(long)).send(b"1"))
            delivery = await anext(aiter(subscriber))
            await page.do("Page.navigate", url=url)
            await shows(page, f"{long}.billing/mail", within="#lags")
            for width in (390, 768, 1280):
                await page.look(width, "light")
                assert await page.value(BROKEN_WORDS) == "", width
                assert await page.value("document.documentElement.scrollWidth") <= width
                assert await page.value(WIDE_TABLES) == (width < 1280), width
                await picture(page, str(width))
            await delivery.accept()
            await sent

    with chromium(tmp_path / "profile") as listening:
        run(look(listening))


BROKEN_WORDS = """[...(function* () {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((each) => each.top)).size > 1) yield word[0];
    }
  }
})()].join(" ")"""
WIDE_TABLES = "[...document.querySelectorAll('.scroll')].some((each) => each.scrollWidth > each.clientWidth)"


async def shows(page: Browser, *texts: str, within: str = "body", any_of: bool = False) -> None:
    """Until all of these texts are there, or one of them."""
    needed = any if any_of else all
    while True:
        shown = await page.value(f"document.querySelector('{within}')?.textContent ?? ''")
        if needed(text in shown for text in texts):
            return
        await asyncio.sleep(0.05)  # the browser's minute ends it


async def without_a_name(page: Browser, least: int = 6) -> list[Any]:
    """What the keyboard reaches and a screen reader says nothing of."""
    nodes = (await page.do("Accessibility.getFullAXTree"))["nodes"]
    reached = [each for each in nodes if any(one["name"] == "focusable" for one in each.get("properties", ()))]
    assert len(reached) >= least
    return [each for each in reached if not each.get("name", {}).get("value")]


MANY_LINKS = """import('/console/tables.js').then(({ Table }) => {
  const table = new Table(document.createElement('table'), ['Link', 'Credit#', 'In doubt#'], '');
  const times = [1, 2, 3, 4, 5].map((round) => {
    const began = performance.now();
    table.show([...Array(5000)].map((_, link) => [`link ${link}`, [`link ${link}`, link * round, round]]));
    return performance.now() - began;
  });
  return Math.min(...times.slice(1));
})"""
"""Each second's turn for an address with 5,000 links: the fastest, as the machine may be busy."""


async def picture(page: Browser, name: str) -> None:
    data = b64decode((await page.do("Page.captureScreenshot"))["data"])
    assert data.startswith(b"\x89PNG")
    assert len(data) > 20_000  # more than an empty page
    if directory := os.environ.get("ONCEWAY_SCREENSHOTS"):
        await asyncio.to_thread(Path(directory, f"console-{name}.png").write_bytes, data)
