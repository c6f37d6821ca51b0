"""Shell: changes of the mirror topics of cluster links."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from barnabas.client.admin.links import MirrorAction
from barnabas.console.access.users import Role
from barnabas.console.changes.change import Change, Outcome, confirmed, required
from barnabas.console.errors import BadInputError
from barnabas.console.sources import Call
from barnabas.core.errors import KafkaError

_ACTIONS: Final = {
    "pause": MirrorAction.PAUSE,
    "resume": MirrorAction.RESUME,
    "recover": MirrorAction.RECOVER,
    "stop": MirrorAction.STOP,
}


async def act_on_mirrors(call: Call) -> Outcome:
    """Pause, resume or recover the mirrors of a link: all, or those of one topic."""
    return await _act(call, ("pause", "resume", "recover"))


async def stop_mirrors(call: Call) -> Outcome:
    """Stop mirrors, so that their topics take writes. What the source has and the mirror has not is lost."""
    confirmed(call, call.path["link"])
    return await _act(call, ("stop",))


async def _act(call: Call, allowed: tuple[str, ...]) -> Outcome:
    link, action, topic = call.path["link"], required(call, "action"), call.query.get("topic", "").strip()
    if action not in allowed:
        raise BadInputError(f"action is one of {', '.join(allowed)}, not {action!r}.")
    topics = [re.escape(topic)] if topic else []
    changes = await call.admin.alter_mirrors(link, _ACTIONS[action], topics)
    for change in changes:
        if change.error is not None:
            raise KafkaError(change.error.code, f"{change.topic}: {change.error}")
    what = topic or f"{len(changes)} topics"
    return Outcome(f"{action} was requested for {what} of {link}.", f"/links/{quote(link, safe='')}")


LINK_CHANGES: Final = (
    Change("/links/{link}/act", "act on mirrors", Role.EDITOR, act_on_mirrors, ("action", "topic")),
    Change("/links/{link}/stop", "stop mirrors", Role.ADMIN, stop_mirrors, ("action", "topic")),
)
