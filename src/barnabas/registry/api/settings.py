"""Shell: handlers of /config and /mode, for the whole registry or for the subject (or context) in the path."""

from __future__ import annotations

from typing import Any

from barnabas.registry import settings
from barnabas.registry.api.calls import Call
from barnabas.registry.errors import Code, RegistryError


def _place(call: Call) -> str | None:
    if "subject" in call.arguments:
        return call.own_subject
    return None if call.context == "." else f":{call.context}:"


async def read_config(call: Call) -> Any:
    return settings.read_config(call.state, _place(call), default_to_global=call.flag("defaultToGlobal")).to_json()


async def change_config(call: Call) -> Any:
    place, body = _place(call), call.body()
    config = await call.registry.change(lambda state, _: settings.decide_config(state, place, body))
    document = config.to_json()
    level = document.pop("compatibilityLevel", None)
    return {**document, **({"compatibility": level} if level else {})}


async def delete_config(call: Call) -> Any:
    place = _place(call)
    config = await call.registry.change(lambda state, _: settings.decide_delete_config(state, place))
    return config.to_json()


async def read_mode(call: Call) -> Any:
    mode = settings.read_mode(call.state, _place(call), default_to_global=call.flag("defaultToGlobal"))
    return {"mode": mode.value}


async def change_mode(call: Call) -> Any:
    place, force = _place(call), call.flag("force")
    name = call.body().get("mode")
    if not isinstance(name, str):
        raise RegistryError(Code.INVALID_MODE, "The body must contain a 'mode'.")
    mode = await call.registry.change(lambda state, _: settings.decide_mode(state, place, name, force=force))
    return {"mode": mode.value}


async def delete_mode(call: Call) -> Any:
    place = _place(call)
    mode = await call.registry.change(lambda state, _: settings.decide_delete_mode(state, place))
    return {"mode": mode.value}
