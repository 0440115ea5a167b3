"""Alerts judged here and now: as promtool judges the rules, and what is not known is not said to be well."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from onceway.operate.alerts import ALERTS
from onceway.operate.well import NEEDED, Judge, Told, Verdict

ROOT = Path(__file__).resolve().parents[2]
CASES: dict[str, Any] = yaml.safe_load((ROOT / "monitoring/alerts_test.yaml").read_text())["tests"][0]
STEP_S = 30.0
KINDS = {"onceway_pipe": "store", "onceway_bus": "bus", "onceway_inge": "receiver"}


def values(notation: str) -> list[float | None]:
    """promtool's: `0x3 1x2` is 0 0 0 0 1 1 1, `5+30x2` is 5 35 65, `_x3` is nothing three times."""
    found: list[float | None] = []
    for part in notation.split():
        match = re.fullmatch(r"(_|[\d.]+)(?:([+-]\d+))?x(\d+)", part)
        assert match is not None, part
        if match[1] == "_":
            found += [None] * int(match[3])
        else:
            found += [float(match[1]) + float(match[2] or 0) * index for index in range(int(match[3]) + 1)]
    return found


def said() -> Iterator[tuple[float, list[Told]]]:
    """What the processes of the cases have said, each half minute."""
    series = []
    for each in CASES["input_series"]:
        name, labels = re.fullmatch(r"(\w+)\{(.*)\}", each["series"]).groups()
        (instance,) = re.findall(r'instance="([^"]*)"', labels)
        own = re.sub(r'(?:, )?(?:job|instance)="[^"]*"', "", labels).removeprefix(", ").replace('", ', '",')
        series.append((KINDS.get(name[:12], "router"), instance, name, own, values(each["values"])))
    for index in range(max(len(numbers) for *_, numbers in series)):
        at = index * STEP_S
        texts: dict[Any, list[str] | None] = {}
        for who, instance, name, labels, numbers in series:
            lines = texts.setdefault((who, instance), [])
            number = numbers[index] if index < len(numbers) else None
            if name == "up" and number == 0:
                texts[who, instance] = None
            elif number is not None and lines is not None:
                lines.append(f"{name}{{{labels}}} {number}" if labels else f"{name} {number}")
        yield (
            at,
            [
                Told(who, name, at, None if lines is None else "\n".join(lines), "does not answer")
                for (who, name), lines in texts.items()
            ],
        )


def firing(verdicts: Sequence[Verdict], name: str) -> list[str]:
    (verdict,) = [each for each in verdicts if each.alert.name == name]
    document = verdict.document()
    return sorted(each["summary"] for each in document["findings"] if each["state"] == "firing")


def test_alerts_are_judged_as_promtool_judges_their_rules() -> None:
    judge, judged = Judge(), 0
    for at, told in said():
        verdicts = judge.judged(told)
        for case in CASES["alert_rule_test"]:
            if float(case["eval_time"].removesuffix("m")) * 60 == at:
                expected = sorted(each["exp_annotations"]["summary"] for each in case.get("exp_alerts", ()))
                assert firing(verdicts, case["alertname"]) == expected, case
                judged += 1
    assert judged == len(CASES["alert_rule_test"])


def router(name: str, at: float, *lines: str, up_s: float = 3600.0) -> Told:
    """A router that says all that is asked for, these samples among it."""
    types = [f"# TYPE {each} gauge" for each in sorted(NEEDED)]
    return Told("router", name, at, "\n".join([*types, f"onceway_uptime_seconds {up_s}", *lines]))


def judged(judge: Judge, name: str, *told: Told) -> dict[str, Any]:
    """What is said of one alert."""
    (verdict,) = [each for each in judge.judged(told) if each.alert.name == name]
    return verdict.document()


LINKS = 'onceway_limit_reached_total{limit="links"}'
LIMIT = "OncewayLimitReached"


def test_a_counter_that_is_zero_or_younger_than_the_rule_looks_back_is_known_at_once() -> None:
    assert judged(Judge(), LIMIT, router("a", 0, f"{LINKS} 0"))["state"] == "well"
    young = judged(Judge(), LIMIT, router("a", 0, f"{LINKS} 2", up_s=20.0))
    assert (young["state"], young["findings"][0]["value"]) == ("firing", "2")


def test_a_counter_that_has_counted_needs_history_until_it_counts_again_or_the_time_is_over() -> None:
    judge = Judge()
    assert judged(judge, LIMIT, router("a", 0, f"{LINKS} 7"))["why"] == ["needs 5m of history, and has 0s"]
    said = judged(judge, LIMIT, router("a", 20, f"{LINKS} 7"))
    assert (said["state"], said["why"]) == ("unknown", ["needs 5m of history, and has 20s"])
    said = judged(judge, LIMIT, router("a", 40, f"{LINKS} 9"))
    assert (said["state"], said["findings"][0]["value"], said["findings"][0]["places"]) == ("firing", "2", ("a",))
    for at in range(60, 400, 20):
        said = judged(judge, LIMIT, router("a", at, f"{LINKS} 9"))
    assert (said["state"], said["why"]) == ("well", [])


def test_what_was_counted_while_nobody_looked_is_not_taken_for_new() -> None:
    judge = Judge()
    judged(judge, LIMIT, router("a", 0, f"{LINKS} 0"))
    said = judged(judge, LIMIT, router("a", 4000, f"{LINKS} 5", up_s=7600.0))
    assert (said["state"], said["why"]) == ("unknown", ["needs 5m of history, and has 0s"])


def test_a_router_that_was_started_again_begins_its_counters_at_zero() -> None:
    judge = Judge()
    judged(judge, LIMIT, router("a", 0, f"{LINKS} 5", up_s=100.0))
    said = judged(judge, LIMIT, router("a", 30, f"{LINKS} 1", up_s=5.0))
    assert (said["state"], said["findings"][0]["value"]) == ("firing", "6")


def test_a_series_that_a_known_router_begins_to_say_has_grown_from_zero() -> None:
    judge = Judge()
    rejected = 'onceway_publisher_outcomes_total{{address="or\\"ders {{x}}",outcome="rejected"}} {}'
    judged(judge, "OncewayMessagesRejected", router("a", 0))
    said = judged(judge, "OncewayMessagesRejected", router("a", 5, rejected.format(3), up_s=3605.0))
    assert [each["summary"] for each in said["findings"]] == ['Subscribers have rejected messages of or"ders {x}']


def test_a_condition_is_pending_until_it_has_held_and_begins_anew_after_a_gap() -> None:
    judge, down = Judge(), 'onceway_neighbour_up{neighbour="b"} 0'
    states = [judged(judge, "OncewayLinkDown", router("a", at, down))["state"] for at in (0, 30, 60, 200, 260)]
    assert states == ["pending", "pending", "firing", "pending", "firing"]


def test_what_nobody_says_is_unknown_and_what_is_missing_is_named() -> None:
    silent = Told("router", "b", 0, None, "does not answer: nobody listens")
    said = {each.alert.name: each.document() for each in Judge().judged([router("a", 0), silent])}
    assert said["OncewayRouterDown"]["findings"][0]["places"] == ("b",)
    assert said["OncewayMemoryLimit"]["why"] == ["router b does not answer: nobody listens"]
    assert {said[name]["state"] for name in ("OncewayPipeWaits", "OncewayBusDiskFills", "OncewayIngestNobody")} == {
        "unknown"
    }
    old = Told("router", "a", 0, "# TYPE onceway_uptime_seconds gauge\nonceway_uptime_seconds 5")
    assert judged(Judge(), "OncewayFileBroken", old)["why"] == ["router a does not say onceway_file_broken"]


def test_clocks_are_compared_where_there_are_two() -> None:
    link = 'onceway_neighbour_up{neighbour="b"} 1'
    one, two = (router(name, 50, f"onceway_clock_seconds {clock}", link) for name, clock in (("a", 50.2), ("b", 53.4)))
    assert judged(Judge(), "OncewayClocksDiffer", one)["why"] == ["needs the clocks of two routers at least"]
    (ahead,) = judged(Judge(), "OncewayClocksDiffer", one, two)["findings"]
    assert (ahead["value"], ahead["places"]) == ("3.2s", ("b",))
    assert judged(Judge(), "OncewayClocksDiffer", router("a", 50, "onceway_clock_seconds 50"))["state"] == "well"


def test_every_page_that_an_alert_names_exists() -> None:
    for alert in ALERTS:
        assert "](" not in alert.remedy_text + alert.means_text
        for page in re.findall(r"\((docs/[^)#]*)", alert.remedy_text):
            assert (ROOT / page).is_file(), alert.name
