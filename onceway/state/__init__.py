"""The state directory of a network on this host: control sockets, locks, when each router was last seen alive, and what
it had in hand.

Routers keep no messages and no subscriptions. What is remembered here says how long ago the network died, so that a
start after that waits for the subscriptions from before for the rest of their time, and not for all of it; and whose
input a router handled when it died (`onceway.state.in_hand`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = "ONCEWAY_STATE_DIR"
SYSTEM: Final = Path("/var/lib/onceway")


def state_dir(network: str, override: Path | None = None) -> Path:
    """The state directory of `network`; it may not exist yet (`make_directory`).

    `override` (`--state-dir`), $ONCEWAY_STATE_DIR, systemd's $STATE_DIRECTORY, /var/lib/onceway for root, and
    $XDG_STATE_HOME/onceway or ~/.local/state/onceway for others: below the first of these that there is.
    """
    return state_base(override) / network


def state_base(override: Path | None = None) -> Path:
    """The directory of the state directories of all networks."""
    return _base(override).absolute()


def _base(override: Path | None) -> Path:
    if override is not None:
        return override
    if named := os.environ.get(ENVIRONMENT):
        return Path(named)
    if of_service := os.environ.get("STATE_DIRECTORY"):
        return Path(of_service.split(":")[0])
    if os.geteuid() == 0:
        return SYSTEM
    of_user = os.environ.get("XDG_STATE_HOME", "")
    base = Path(of_user) if os.path.isabs(of_user) else Path.home() / ".local" / "state"
    return base / "onceway"
