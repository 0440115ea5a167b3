"""`onceway policy test` answers as a router would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from onceway.access.users import User, Users, store_users
from onceway.cli.policy import command

TOPOLOGY = """\
network: shop
sasl: {users: users.json}
policies:
  - {groups: [ops], send: ["*"], receive: ["*"]}
  - {users: [alice], send: [orders], receive: ["box/${user}"], dynamic: true}
routers: {a: {amqp: 5672, interrouter: 7672, admin: 8672}}
"""


@pytest.fixture
def run(tmp_path: Path) -> object:
    path = tmp_path / "shop.yaml"
    path.write_text(TOPOLOGY)
    store_users(tmp_path / "users.json", Users({"alice": User({}), "olga": User({}, ("ops",))}))
    return lambda *args, env=None: CliRunner().invoke(command, ["test", *args, "--topology", str(path)], env=env)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("alice send orders", "allowed by policies[1]: {users: [alice], send: [orders],"),
        ("alice receive box/alice", "allowed by policies[1]"),
        ("alice send _dynamic/a/1", "allowed by policies[1]"),
        ("olga receive anything", "allowed by policies[0]"),
        ("bob receive anything --group ops", "allowed by policies[0]"),
    ],
)
def test_what_is_allowed_names_the_entry(run: object, arguments: str, answer: str) -> None:
    result: Result = run(*arguments.split())  # type: ignore[operator]
    assert result.exit_code == 0, result.output
    assert answer in result.output


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("alice receive orders", "refused: user 'alice' may not receive from 'orders': no policy allows it"),
        ("alice receive box/olga", "may not receive from 'box/olga'"),
        ("olga send _dynamic/a/1", "may not use dynamic nodes"),
        ("bob send orders", "note: users.json has no user bob"),
        ("anonymous send orders", "user 'anonymous' may not send to 'orders'"),
    ],
)
def test_what_is_refused_has_the_routers_words(run: object, arguments: str, answer: str) -> None:
    result: Result = run(*arguments.split())  # type: ignore[operator]
    assert result.exit_code == 1
    assert answer in result.output


def test_a_file_without_policies_lets_everyone(tmp_path: Path) -> None:
    path = tmp_path / "open.yaml"
    path.write_text("network: shop\nrouters: {a: {amqp: 5672, interrouter: 7672, admin: 8672}}\n")
    result = CliRunner().invoke(command, ["test", "bob", "send", "orders", "--topology", str(path)])
    assert (result.exit_code, "no policies" in result.output) == (0, True)


def test_the_documents_example_answers_as_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    policies = re.search(r"```yaml\n(policies:.*?)```", page, re.DOTALL)
    shown = re.search(r"\$ onceway policy (test .*) --topology shop.yaml\n(.*)\n", page)
    path = tmp_path / "shop.yaml"
    path.write_text(f"network: shop\nrouters: {{a: {{amqp: 5672, interrouter: 7672, admin: 8672}}}}\n{policies[1]}")
    result = CliRunner().invoke(command, [*shown[1].split(), "--topology", str(path)])
    assert result.output.strip() == shown[2]
