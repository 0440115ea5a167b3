"""Each line of the contract has tests: which."""

from __future__ import annotations

import re
from pathlib import Path

from tests.live import ROOT

TESTS = {
    "1": ["test_a_plain_http_request_is_redirected_to_https"],
    "2": ["test_every_request_needs_a_token", "test_the_password_is_ignored_and_a_broken_header_is_401"],
    "3": ["test_tokens_are_for_root_only", "test_a_topic_is_deleted_by_its_owner_or_root"],
    "GET /api_tokens": ["test_tokens_are_made_listed_and_deleted_by_root"],
    "POST /api_tokens": ["test_a_bad_name_of_a_client_is_400", "test_a_token_needs_a_json_object_with_a_name"],
    "DELETE /api_tokens/:token": ["test_a_subscriber_whose_token_is_deleted_stays_subscribed"],
    "POST /topics/:name": [
        "test_a_push_creates_a_topic_that_belongs_to_the_first_client",
        "test_pushes_of_two_clients_at_once_give_the_topic_to_one",
        "test_a_bad_name_of_a_topic_is_400",
        "test_a_bad_event_is_400_and_creates_no_topic",
        "test_an_event_that_is_too_large_is_413",
    ],
    "DELETE /topics/:name": [
        "test_a_topic_is_deleted_by_its_owner_or_root",
        "test_deleting_a_topic_unsubscribes_and_leaves_what_is_queued",
    ],
    "POST /subscription": [
        "test_a_subscription_has_the_defaults_of_the_contract",
        "test_a_bad_subscription_is_400",
        "test_an_unknown_topic_is_404",
        "test_topics_that_are_not_listed_are_unsubscribed",
    ],
    "GET /subscriber": ["test_a_subscription_is_edited_step_by_step"],
    "PUT /subscriber": ["test_a_subscription_is_edited_step_by_step"],
    "DELETE /subscriber": ["test_a_subscription_is_edited_step_by_step"],
    "GET /subscriber/topics": ["test_a_subscription_is_edited_step_by_step"],
    "PUT /subscriber/topics/:name": ["test_a_subscriber_goes_back_to_a_position_or_a_time"],
    "DELETE /subscriber/topics/:name": ["test_a_subscription_is_edited_step_by_step"],
    "GET /topics": ["test_a_push_creates_a_topic_that_belongs_to_the_first_client"],
    "GET /subscriptions": ["test_subscriptions_say_what_was_sent_and_how_old_the_oldest_is"],
    "GET /pulse": ["test_the_pulse_is_there", "test_a_full_store_answers_503_and_loses_nothing"],
    "GET /pulse/scaling": [
        "test_the_answer_takes_a_second_when_a_hundred_batches_are_due",
        "test_the_answer_comes_at_once_when_fewer_are_due",
    ],
    "GET /metrics": ["test_the_metrics_have_the_names_of_the_contract"],
    "GET /openapi.json": ["test_the_description_is_served", "test_every_route_is_described_and_nothing_else"],
    "GET /": ["test_the_page_shows_topics_subscribers_queues_and_failures", "test_a_browser_shows_the_page"],
    "4": [
        "test_a_batch_has_at_most_max_events_in_order_and_the_uuid_as_user",
        "test_a_batch_waits_for_more_until_its_timeout",
        "test_a_batch_waits_for_its_timeout",
        "test_full_batches_go_first",
        "test_the_bus_dates_events_without_a_timestamp_and_leaves_null_data_out",
    ],
    "5": [
        "test_any_2xx_acknowledges",
        "test_anything_else_fails_and_the_same_batch_is_sent_again",
        "test_a_connection_has_2_s_and_an_answer_20_s",
        "test_a_connection_that_takes_too_long_fails_the_batch",
        "test_an_answer_that_takes_too_long_fails_the_batch",
        "test_a_redirect_is_not_followed",
        "test_pauses_double_from_100_ms_to_6_4_s_with_jitter",
    ],
    "6": ["test_one_batch_at_a_time_keeps_the_order", "test_a_subscriber_that_hangs_delays_no_other"],
    "7": [
        "test_nothing_is_lost_and_order_is_kept_when_the_bus_and_routers_are_killed",
        "test_a_restarted_bus_goes_on_with_what_it_holds",
    ],
    "8": [
        "test_a_full_store_answers_503_and_loses_nothing",
        "test_a_full_disk_answers_503_and_loses_nothing",
        "test_a_full_disk_of_the_database_answers_503_and_loses_nothing",
    ],
    "9": ["test_autodrop_drops_the_oldest_events_of_the_stalest_queue"],
    "10": [
        "test_an_event_is_kept_once_however_many_subscribers_wait_for_it",
        "test_an_event_above_5_kb_is_compressed_and_keeps_its_topic",
    ],
    "11": ["test_the_metrics_have_the_names_of_the_contract"],
}


def test_each_line_of_the_contract_has_tests() -> None:
    contract = (ROOT / "docs" / "contracts" / "event-bus.md").read_text()
    lines = re.findall(r"^(\d+) ", contract, re.MULTILINE)
    lines += re.findall(r"^\| ([A-Z]+ /[\w/.:]*)", contract, re.MULTILINE)
    assert sorted(lines) == sorted(TESTS)
    written = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    missing = [name for names in TESTS.values() for name in names if f"def {name}(" not in written]
    assert missing == []
