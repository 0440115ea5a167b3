"""Makes docs/interop.md from a run's JUnit XML: `python -m tests.interop.page RUN.xml`; `make interop` calls it."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Final

PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"

PROTON, RHEA, PROMISE = "python-qpid-proton", "rhea", "rhea-promise"
CORE, AZURE, C, RABBIT = (
    "@azure/core-amqp",
    "azure-servicebus (pure Python)",
    "qpid-proton C (Debian)",
    "rabbitmq-amqp-python-client",
)
CLIENTS: Final = (PROTON, C, RHEA, PROMISE, CORE, AZURE, RABBIT)
ROWS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "publish and subscribe, through three routers": {
        PROTON: ("test_simple_send_reaches_simple_recv", "test_blocking_send_reaches_blocking_receive"),
        RHEA: ("test_rhea_reaches_rhea_with_every_body_type", "test_rhea_reaches_proton"),
        PROMISE: ("test_every_type[promise-promise]",),
        AZURE: ("test_every_type[azure-azure]",),
        C: ("test_every_type[c-c]",),
    },
    "SASL: each mechanism that the client has, with TLS and without": {
        PROTON: ("test_each_mechanism_and_each_reason_to_be_refused[proton]",),
        RHEA: ("test_each_mechanism_and_each_reason_to_be_refused[rhea]",),
    },
    "every type of body": {
        PROTON: ("test_every_body_type_arrives_as_it_was_sent",),
        RHEA: (
            "test_rhea_reaches_rhea_with_every_body_type",
            "test_proton_reaches_rhea_with_every_body_type",
            "test_rhea_reaches_proton_byte_by_byte_with_every_body_type",
        ),
    },
    "every other section": {PROTON: ("test_every_other_section_arrives_as_it_was_sent",)},
    "settle modes that differ": {PROTON: ("test_a_publisher_and_a_subscriber_need_not_agree_on_the_mode",)},
    "messages of 10 MB": {
        PROTON: ("test_ten_megabytes_arrive_between_small_messages",),
        RHEA: ("test_ten_megabytes_from_rhea_to_rhea",),
    },
    "queues": {
        PROTON: (
            "test_outcomes_of_a_consumer",
            "test_what_a_consumer_leaves_undecided_goes_to_another",
            "test_a_browser_sees_what_waits_at_all_routers_and_takes_nothing",
        ),
        RHEA: ("test_rhea_publishes_and_consumers_at_two_routers_share",),
    },
    "anonymous terminus": {
        PROTON: ("test_proton_sends_to_several_addresses_and_is_told_of_each",),
        RHEA: ("test_rhea_sends_to_several_addresses_and_is_told_of_each",),
    },
    "dynamic source, request and reply": {
        PROTON: ("test_proton_asks_and_is_answered",),
        RHEA: ("test_rhea_asks_and_proton_answers",),
    },
    "recovery: exactly once while routers are killed": {
        PROTON: ("test_two_routers_are_killed_at_once[proton]",),
        RHEA: ("test_nothing_is_lost_repeated_or_reordered_when_everything_dies",),
    },
    "drain": {PROTON: ("test_proton_drains",), RHEA: ("test_rhea_drains_selects_and_reads_where_else_it_may_connect",)},
    "filters": {
        PROTON: ("test_proton_selects",),
        RHEA: ("test_rhea_drains_selects_and_reads_where_else_it_may_connect",),
    },
    "failover list": {
        PROTON: ("test_proton_reads_where_else_it_may_connect",),
        RHEA: ("test_rhea_drains_selects_and_reads_where_else_it_may_connect",),
    },
    "`$management`": {
        PROTON: ("test_entities_and_answers_at_another_router", "test_who_may_read_reads_and_who_may_act_deletes"),
        CORE: ("test_azures_core_amqp_asks_the_management_node",),
    },
    "WebSocket": {RHEA: ("test_rhea_reaches_rhea_in_websockets_with_every_body_type",)},
    "WebSocket in a browser, exactly once, its router killed": {
        RHEA: ("test_rhea_in_a_browser_publishes_and_subscribes_exactly_once_while_its_router_dies",),
    },
    "refuses every server but its own": {RABBIT: ("test_rabbitmqs_client_takes_rabbitmq_only",)},
}

MATRIX: Final = {PROTON: "proton", RHEA: "rhea", PROMISE: "promise", AZURE: "azure", C: "c"}

HEAD: Final = """\
# Clients of others

`make interop` makes this page. It installs each client with pip, npm or apt-get, runs the tests with them, and writes down what they have
shown. A cell is a test; an empty one is not tested. [What each client needs](clients.md) is on a page of its own. Qpid JMS
is missing: neither Debian nor PyPI nor npm has it.

"""

TYPES: Final = """
## Every type, from each client to each other

Each sends every AMQP type that it and the receiver have a word for, with the values at which encodings change, through three routers. Each
octet arrives as it was sent, and the receiver reads each value as it was meant. What a client has no word for stands in `test_types.py`.
Debian's C programs send integers in maps only and do not say their octets, and azure-servicebus keeps types inside of lists. @azure/core-amqp has neither senders nor
receivers of its own.

"""


def results(path: str) -> dict[str, str]:
    """By test, with its parameters and without: the worst of its cases."""
    found: dict[str, str] = {}
    worst = (PASSED, SKIPPED, FAILED)
    for case in ET.parse(path).iter("testcase"):
        children = {child.tag for child in case}
        result = FAILED if children & {"failure", "error"} else SKIPPED if "skipped" in children else PASSED
        name = case.attrib["name"]
        for each in {name, name.partition("[")[0]}:
            found[each] = max(found.get(each, PASSED), result, key=worst.index)
    return found


def page(found: Mapping[str, str]) -> str:
    rows = [[row, *(cell(found, cells.get(client, ())) for client in CLIENTS)] for row, cells in ROWS.items()]
    types = [
        [f"from {sender}", *(cell(found, [f"test_every_type[{here}-{there}]"]) for there in MATRIX.values())]
        for sender, here in MATRIX.items()
    ]
    return HEAD + table(CLIENTS, rows) + TYPES + table([f"to {client}" for client in MATRIX], types)


def cell(found: Mapping[str, str], names: Sequence[str]) -> str:
    results = [(name, found.get(name, "not run")) for name in names]
    return "<br>".join(f"`{name}`" if result == PASSED else f"**{result}**: {name}" for name, result in results)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [["", *columns], ["---"] * (len(columns) + 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(page(results(sys.argv[1])), end="")
