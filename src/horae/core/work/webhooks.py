"""The documents of webhooks (core.time.outside): how they are read, and their secrets.

What must stay true: `canonical` is idempotent, also of a document whose secret is sealed; `outline` is the same
whatever the secret is, so that a document in which it is hidden is still the same trigger.
"""

from __future__ import annotations

from horae.core.fields import Fields, Problems, fields_of, type_words
from horae.core.model import Json
from horae.core.secrets import fields as secret_fields
from horae.core.secrets import sealing
from horae.core.secrets.references import shown_references, text_or_reference
from horae.core.time.outside import FORMATS, PLAIN, PUSH, WEBHOOK, is_webhook

MAX_NAMES = 50  # branches, and events
MAX_NAME = 255  # characters of one
MAX_SECRET = 2048  # characters, sealed ones among them
_FIELDS = frozenset({"format", "secret", "branches", "events"})


def canonical(document: Json) -> Json:
    """Return the document in its one normal form; raises Invalid with every problem."""
    problems = Problems()
    fields = Fields(document, "", problems)
    fields.refuse_others(frozenset({WEBHOOK}))
    inner = fields_of(document[WEBHOOK], WEBHOOK, problems, "must be a mapping such as {format: github}")
    found = _read_webhook(inner) if inner is not None else {}
    problems.raise_any()
    return {WEBHOOK: found}


def _read_webhook(fields: Fields) -> Json:
    fields.refuse_others(_FIELDS)
    found: Json = {"format": fields.word("format", FORMATS, PLAIN)}
    if fields.values.get("secret") is not None:
        found["secret"] = text_or_reference(fields, "secret", lambda: fields.text("secret", MAX_SECRET))
    for name in ("branches", "events"):
        if found["format"] == PLAIN and name in fields.values:
            fields.fault(name, "E_FIELD_CONFLICT", f"a plain call has no {name}", "give format: github or gitea")
        elif names := _read_names(fields, name):
            found[name] = names
    if found.get("events") == [PUSH]:
        del found["events"]
    return found


def _read_names(fields: Fields, name: str) -> list[str]:
    path = fields.at(name)
    found: dict[str, None] = {}
    for index, value in enumerate(fields.items(name, MAX_NAMES, name, least=1)):
        if type(value) is not str:
            fields.problems.add(f"{path}[{index}]", "E_TYPE", *type_words("must be text", value))
        elif not 0 < len(value) <= MAX_NAME or not value.isprintable() or value.isspace():
            fields.problems.add(f"{path}[{index}]", "E_PATTERN", f"1 to {MAX_NAME} printable characters expected")
        else:
            found[value] = None
    return list(found)


# ── its secret ─────────────────────────────────────────────────────────────────────────────────────


def outline(document: Json) -> Json:
    """Return all of a trigger document but its secret."""
    if not is_webhook(document):
        return document
    hook = {name: value for name, value in document[WEBHOOK].items() if name != "secret"}
    return {WEBHOOK: hook | ({"secret": None} if "secret" in document[WEBHOOK] else {})}


def shown(document: Json) -> Json:
    """Return a trigger document as people may see it."""
    if not has_secret(document):
        return document
    return shown_references(dict(secret_fields.masked(document)), document, WEBHOOK)


def has_secret(document: Json) -> bool:
    return is_webhook(document) and "secret" in document[WEBHOOK]


def kept(new: Json, old: Json) -> Json:
    """Return a changed document, which may come from somebody who saw only `shown` of it."""
    if not has_secret(new):
        return new
    found = dict(secret_fields.unmasked(new, old if has_secret(old) else {}))
    secret_fields.refuse_hidden(found)
    return found


def sealed(new: Json, old: Json, seal: sealing.Seal) -> Json:
    """As the store has it; `old` is what it had."""
    return sealing.sealed(new, old, seal) if has_secret(new) else new


def opened(document: Json, seal: sealing.Seal) -> Json:
    """As a call is checked with it. ConfigError where its secret does not open."""
    return sealing.opened(document, seal) if has_secret(document) else document
