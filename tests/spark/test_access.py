"""Source and sink at routers that let in users only, through TLS."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from onceway.errors import UsageError
from onceway.spark.access import Access
from onceway.spark.errors import IngestFailed, PublishFailed
from onceway.spark.options import sink_options, source_options
from tests.guarded import PASSWORD, Guarded
from tests.live import wait_until
from tests.spark.networks import Source
from tests.spark.outbox_world import commit, rows, staged

NEEDED = {"url": "amqps://r", "topic": "orders", "subscription": "s", "walLocation": "/data/wal"}


def test_rows_go_out_and_come_in_for_a_user_and_for_nobody_else(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    password, wrong = tmp_path / "password", tmp_path / "wrong"
    password.write_text(f"{PASSWORD}\n")
    wrong.write_text("x\n")
    access = Access(ca=str(guarded.pki.ca), user="alice", password_file=str(password))
    login = {"ca": str(guarded.pki.ca), "user": "alice"}
    source = Source(guarded.url[1], "orders", tmp_path / "wal", **login, passwordFile=str(password))
    stranger = Source(guarded.url[0], "orders", tmp_path / "other", **login, passwordFile=str(wrong))
    outbox = tmp_path / "outbox"
    guarded.network.start()
    try:
        stream = source.start()
        stream.initial()
        wait_until(lambda: guarded.network["b"].status()["addresses"].get("orders"), "the source is attached")
        files = staged(outbox, "batch-0", [[("orders", body) for body in rows(0, "orders", 0, 10)]])
        with pytest.raises(PublishFailed, match="the server refused SCRAM-SHA-512-PLUS"):
            refused = Access(ca=str(guarded.pki.ca), user="alice", password_file=str(wrong))
            commit(outbox, guarded.url[0], "batch-0", files, access=refused)
        commit(outbox, guarded.url[0], "batch-0", [], access=access)
        assert wait_until(lambda: len(source.everything()) == 10 and source.everything(), "rows") == rows(
            0, "orders", 0, 10
        )
        with pytest.raises(IngestFailed, match="the server refused SCRAM-SHA-512-PLUS"):
            refused_stream = stranger.start()
            begin = refused_stream.initial()
            wait_until(lambda: refused_stream.latest(begin, limited=False) != begin, "the ingest's failure")
    finally:
        source.close()
        stranger.close()
        guarded.network.close()


def test_files_are_absolute_and_options_that_do_not_fit_are_named() -> None:
    read = source_options({**NEEDED, "ca": "ca.pem", "tokenFile": "/t", "mechanism": "OAUTHBEARER"}, "stream")
    assert read.access == Access(ca=os.path.abspath("ca.pem"), token_file="/t", mechanism="OAUTHBEARER")
    sink = sink_options({"url": "amqps://r", "outboxLocation": "/o", "user": "a", "passwordFile": "/p"}, "stream")
    assert sink.terms.access == Access(user="a", password_file="/p")
    for access, said in (
        (Access(user="a"), "user without passwordFile"),
        (Access(user="a", token_file="/t"), "tokenFile with user"),
        (Access(user="a", password_file="/nowhere"), "/nowhere cannot be read"),
        (Access(key="/k"), "a key without a certificate"),
    ):
        with pytest.raises(UsageError, match=said):
            access.arguments()
