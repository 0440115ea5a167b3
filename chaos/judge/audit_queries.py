"""What judge.py counts message by message, said as joins: the rules of verdict.py in SQL, for any number of histories.

`h` is the history.  `at` places an event: (t, file, block, id), compared in this order.  `events`, `first_faults`,
`deaths` and `waits` are made by audit.py, VIEWS in their order here.  `lives`, `epochs` and all that audit.py makes but
`events` have a few rows per client, and are sent to wherever the messages are.
"""

from __future__ import annotations

DRIVEN = ("run", "end", "fault")
"""Their lines come to the driver whole: one or a few per run."""

VIEWS = {
    # When each message was first sent, and first told accepted.
    "sends": "SELECT h, p, n, min(at) AS sent FROM events WHERE op = 'send' GROUP BY h, p, n",
    "outcomes": """
        SELECT h, p, n, min(at) FILTER (WHERE outcome = 'accepted') AS accepted
        FROM events WHERE op = 'outcome' GROUP BY h, p, n""",
    # A subscription's life: from ready until it closes or is told; what does not change the state is left out.
    "changes": """
        SELECT h, s, op, at FROM (
            SELECT h, s, op, at, lag(op) OVER (PARTITION BY h, s ORDER BY at) AS before
            FROM events WHERE s IS NOT NULL AND op IN ('ready', 'close', 'told'))
        WHERE (op = 'ready') = (before IS NULL OR before <> 'ready')""",
    "lives": """
        SELECT h, s, begun, ending,
            CASE WHEN ended IS NULL THEN 'open' WHEN ended = 'close' THEN 'close'
                 WHEN f.at < ending AND f.at.t + coalesce(timeout_s, 0) <= ending.t THEN 'told'
                 ELSE 'wrongly told' END AS how
        FROM (
            SELECT h, s, op, at AS begun,
                lead(op) OVER (PARTITION BY h, s ORDER BY at) AS ended,
                lead(at) OVER (PARTITION BY h, s ORDER BY at) AS ending
            FROM changes)
        LEFT JOIN first_faults f USING (h)
        LEFT JOIN (SELECT h, name AS s, timeout_s FROM waits WHERE role = 's') USING (h, s)
        WHERE op = 'ready'""",
    "due": """
        SELECT /*+ BROADCAST(lives) */ h, s, p, n, how
        FROM sends JOIN outcomes USING (h, p, n) JOIN lives USING (h)
        WHERE accepted IS NOT NULL AND begun < sent AND (ending IS NULL OR sent < ending)
            AND (how <> 'close' OR accepted < ending)""",
    # What a subscriber has in hand is let go when its process dies, and when it closes.
    "marks": """
        SELECT h, s, at, true AS death FROM deaths
        UNION ALL SELECT h, s, at, op = 'start' FROM events WHERE s IS NOT NULL AND op IN ('start', 'close')
        UNION ALL SELECT DISTINCT h, s,
            named_struct('t', double('-infinity'), 'file', '', 'block', 0L, 'id', 0L), false
            FROM events WHERE op = 'receive'""",
    "epochs": """
        SELECT h, s, at AS begun,
            lead(at) OVER (PARTITION BY h, s ORDER BY at) AS ending,
            coalesce(lead(death) OVER (PARTITION BY h, s ORDER BY at), false) AS dies
        FROM marks""",
    "accepts": "SELECT h, s, p, n, min(at) AS accept FROM events WHERE op = 'accept' GROUP BY h, s, p, n",
    "handed": """
        SELECT /*+ BROADCAST(e) */ r.h, r.s, r.p, r.n,
            count(*) AS times, min(r.at) AS first, max(r.at) AS last, bool_or(dies) AS dies
        FROM events r JOIN epochs e
            ON e.h = r.h AND e.s = r.s AND e.begun < r.at AND (e.ending IS NULL OR r.at < e.ending)
        WHERE r.op = 'receive' GROUP BY r.h, r.s, r.p, r.n, e.begun""",
    "receives": """
        SELECT h, s, p, n, min(first) AS first, bool_or(dies) AS let_go,
            bool_or(times > 1 OR coalesce(accept < last, false)) AS repeated
        FROM handed LEFT JOIN accepts USING (h, s, p, n) GROUP BY h, s, p, n""",
    "in_order": """
        SELECT *, coalesce(n < max(n) OVER (
            PARTITION BY h, s, p ORDER BY first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS late
        FROM receives""",
    # One row for whatever a message was to a subscriber.
    "messages": """
        SELECT h, s, p, n, how IS NOT NULL AS due, first IS NOT NULL AS received, accept IS NOT NULL AS accepted,
            how, let_go, repeated, late, first IS NOT NULL AND (sent IS NULL OR first < sent) AS phantom
        FROM due FULL JOIN in_order USING (h, s, p, n) FULL JOIN accepts USING (h, s, p, n)
        LEFT JOIN sends USING (h, p, n)""",
}

PAIRS = """
    SELECT h, s, p, count_if(due) AS due, count_if(received) AS received, count_if(accepted) AS accepted
    FROM messages GROUP BY h, s, p"""

PUBLISHED = """
    SELECT h, p, count(sent) AS sent, count(accepted) AS accepted
    FROM sends FULL JOIN outcomes USING (h, p, n) GROUP BY h, p"""

PUBLISHERS = """
    SELECT h, p, bool_or(op = 'close') AS closed, count_if(op = 'told') AS told,
        count_if(op = 'told' AND NOT coalesce(f.at < e.at AND f.at.t + coalesce(timeout_s, 0) <= e.at.t, false))
            AS told_without_cause
    FROM events e LEFT JOIN first_faults f USING (h)
    LEFT JOIN (SELECT h, name AS p, timeout_s FROM waits WHERE role = 'p') USING (h, p)
    WHERE p IS NOT NULL AND op IN ('send', 'outcome', 'start', 'told', 'attached', 'close') GROUP BY h, p"""

SUBSCRIBERS = """
    SELECT h, s, count(how) AS lives, count_if(how LIKE '%told') AS told,
        count_if(how = 'wrongly told') AS told_without_cause
    FROM (SELECT DISTINCT h, s FROM events
          WHERE s IS NOT NULL AND op IN ('ready', 'receive', 'accept', 'start', 'told', 'attached', 'close'))
    LEFT JOIN lives USING (h, s) GROUP BY h, s"""

FAULTY = """
    SELECT h, s, p, n, kind FROM (
        SELECT h, s, p, n, explode(array(
            CASE WHEN NOT due OR accepted THEN NULL
                 WHEN how = 'wrongly told' THEN 'lost' WHEN how = 'told' THEN 'excused'
                 WHEN NOT received THEN 'silent' WHEN let_go THEN 'unwritten' ELSE 'early' END,
            if(repeated, 'duplicated', NULL), if(phantom, 'phantom', NULL), if(late, 'reordered', NULL),
            if(accepted AND NOT received, 'unreceived', NULL))) AS kind
        FROM messages
        UNION ALL
        SELECT h, NULL, p, n, CASE WHEN oh IS NULL THEN 'unresolved' WHEN sent IS NULL THEN 'unsent' END
        FROM (SELECT h, p, n, sent FROM sends) FULL JOIN (SELECT *, h AS oh FROM outcomes) USING (h, p, n))
    WHERE kind IS NOT NULL"""

EXAMPLES = """
    SELECT h, s, p, kind, n, count FROM (
        SELECT *, count(*) OVER (PARTITION BY h, s, p, kind) AS count,
            row_number() OVER (PARTITION BY h, s, p, kind ORDER BY n) AS place
        FROM faulty)
    WHERE place <= {examples}"""

SPANS = "SELECT h, min(at.t) AS first, max(at.t) AS last FROM events GROUP BY h"
