"""Writes what the reference pages take from the code, so that they cannot drift away from it.

    python docs/generate.py            write it
    python docs/generate.py --check    change nothing; exit 1 and name the stale pages

A page is prose with blocks in it. What stands between `<!-- made: NAME -->` and `<!-- end -->` is the text of
the function `BLOCKS[NAME]`, drawn from a table of the code: settings.SETTINGS, the click program, the
OpenAPI document, errors.CODES, core.insight.why.codes, core.model, core.lifecycle, service.metrics, cli.assistants.
Every block stands on exactly one page. tests/test_docs.py runs the check.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click

from horae import cli, errors
from horae.cli import session
from horae.cli.assistants.tools import READING, Tool
from horae.cli.assistants.writing import WRITING
from horae.contracts import CONTRACTS
from horae.core import model
from horae.core.insight.why.codes import CODES as EXPLAINED
from horae.core.insight.why.codes import Code as Explained
from horae.core.runs import lifecycle
from horae.service import Services
from horae.service.metrics import Metrics
from horae.settings import SETTINGS, Setting
from horae.web import app, http

REFERENCE = Path(__file__).parent / "reference"
SOURCE = Path(__file__).parent.parent / "src" / "horae"
BLOCK = re.compile(r"(?<=<!-- made: )([\w-]+)( -->\n).*?(?=<!-- end -->)", re.S)
LATER = "kept for later: nothing gives it yet"


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [list(heads), *(list(map(cell, row)) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: object) -> str:
    text = re.sub(r"<(?!a id=|/a>)", "&lt;", str(value))
    return text.replace("|", "\\|").replace("\n", " ")


def code(text: object) -> str:
    return f"`{text}`" if text not in ("", None) else ""


def sections(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


# ── settings ───────────────────────────────────────────────────────────────────────────────────────


def settings() -> str:
    rows = [(f"<a id='{one.name}'></a>`{one.name}`", one.help, takes(one), default(one)) for one in SETTINGS]
    return table(("setting", "what it is", "takes", "default"), rows)


def takes(setting: Setting) -> str:
    """What a setting takes, in the words with which it refuses anything else."""
    try:
        setting.kind.read(object())
    except Exception as refused:
        return str(getattr(refused, "expected", setting.kind.metavar))
    raise AssertionError(f"{setting.name} takes anything")


def default(setting: Setting) -> str:
    return setting.default_text or code(setting.described_default())


# ── command line ───────────────────────────────────────────────────────────────────────────────────

SHARED = {"server", "token_file", "ca_file", "cert_file", "insecure", "organisation", "json", "version"}
SETTING_HELP = {setting.flag: setting.help for setting in SETTINGS}


def commands(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, Any, Any]]:
    """(full name, command, context) of a command and everything below it."""
    context = click.Context(command, parent=parent, info_name=name.rpartition(" ")[2], **command.context_settings)
    yield name, command, context
    for below in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from commands(command.get_command(context, below), f"{name} {below}", context)


def program() -> list[tuple[str, Any, Any]]:
    return list(commands(cli.app, "horae"))


def command_texts() -> str:
    return sections(one_command(*each) for each in program()[1:])


def one_command(name: str, command: Any, context: Any) -> str:
    params = [param for param in command.get_params(context) if "--help" not in param.opts]
    flags = [param.opts[0] for param in params if is_setting(param)]
    own = [param for param in params if param.name not in SHARED and not is_setting(param)]
    words = [param.metavar for param in own if is_argument(param)]
    parts = [f"## {name}", command.help, f"```text\n{' '.join([name, '[OPTIONS]', *words])}\n```"]
    if own:
        parts.append(table(("", "", "default"), map(one_param, own)))
    if flags:
        which = "every one" if len(flags) == len(SETTING_HELP) else ", ".join(map(code, flags))
        parts.append(f"[Settings](settings.md) that are flags of it: {which}.")
    return sections([*parts, f"Example: `{command.epilog.partition('Example: ')[2]}`"])


def is_setting(param: Any) -> bool:
    """Return whether a flag is that of a setting, and not one of the command that is called alike."""
    return param.opts[0] in SETTING_HELP and param.help.startswith(SETTING_HELP[param.opts[0]])


def is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def one_param(param: Any) -> tuple[str, str, str]:
    named = param.metavar if is_argument(param) else f"{', '.join(param.opts)} {param.metavar or ''}".strip()
    value = "required" if param.required else param.to_info_dict()["default"]
    return code(named), param.help, "" if value in (None, False, (), []) else str(value)


def dry_runs() -> str:
    """Return the commands that have --dry-run."""
    have = [name for name, command, _ in program() if any(one.name == "dry_run" for one in command.params)]
    return f"The commands that have it: {', '.join(map(code, have))}."


def shared_options() -> str:
    _, root, context = program()[0]
    return table(("", "", "default"), map(one_param, root.get_params(context)))


def exit_codes() -> str:
    return table(("code", "meaning"), session.EXIT_CODES.items())


# ── HTTP ───────────────────────────────────────────────────────────────────────────────────────────

BODIES = {
    "JobsDocument": 'one [job document](job-document.md), or up to 10,000 as `{"jobs": […]}`, as a JSON array, or as '
    "NDJSON (`application/x-ndjson`, `application/jsonl`)",
    "SignalValue": "any JSON of up to 256 KiB",
    "Decision": "`comment`",
    "CancelRequest": "as RerunRequest; `where` may also have a `queue`",
    "JobsRequest": "`jobs`, a list of ids, or `where` (`q`, `name`, `named`, `owner`, `kind`, `tag`, `queue`, "
    "`paused`, `state`, a list of states of the latest run); `dry_run`",
    "TagsRequest": "as JobsRequest, with `add`, `remove`, lists of tags",
    "RerunRequest": "`runs`, a list of ids, or `where` (`job`, `state`, `due_from`, `due_until`, `node`, `owner`, "
    "`name`); `dry_run`",
    "OrdersDocument": 'up to 10,000 orders as `{"runs": […]}`, as a JSON array, or as NDJSON (`application/x-ndjson`, '
    "`application/jsonl`). An order has a `job` (its id as a number, or its key as text), and if wanted `data`, "
    "`node`, `priority` (0 to 9, instead of the job's own), `run_at`, and `idempotency_key`",
    "Order": "one of these orders",
    "JobDocument": "a [job document](job-document.md)",
    "TriggerDocument": "a [trigger document](job-document.md#triggers)",
    "HookCall": "the data of the run, or what GitHub or Gitea tell ([webhooks](../howto/webhooks.md)); JSON or a form",
    "TriggerPatch": "any of `enabled`, `next_at` (moves the next moment once) and `data`",
    "RunRequest": "`data` for this run, `node`, the only node that may run it, `priority` (0 to 9, instead of the "
    "job's own), and `run_at`, the moment at which it is due",
    "GrantRequest": "`who`, `role` (`operator` or `editor`), and one of `job` (an id), `tag` and `queue`",
    "TokenRequest": "`name`, and if wanted `scope` (`user` or `agent`), `owner` (the name, unless said) "
    "and `expires_in` (a duration of at most 366 days, or `never`; 90 days, and for agents never, unless said); made "
    "with a token, it has that one's owner and ends with it",
    "DeviceTokenRequest": "`device_code`",
    "UserRequest": "`name`, and if wanted `kind` (`person` or `service`), `email`, `org` (name, number or `*`), `role`",
    "LinkRequest": "`issuer` and `subject` of a provider's user",
    "OrganisationRequest": "`name`",
    "OrganisationChanges": "a JSON object with what shall change of `name`, `most_waiting` and `most_jobs`",
    "MemberRequest": "`role`",
    "AlertRuleDocument": "an alert [rule](../howto/alerts.md#rules)",
    "AlertChannelDocument": "a [channel](../howto/alerts.md#channels) of alerts",
    "QueueDocument": "the document of a [queue](../howto/queues.md#make-one-and-use-it)",
    "ResourceDocument": '`{"capacity": 2}`',
    "SecretRequest": "`value`, text of up to 64 KiB",
    "PreviewRequest": "a [trigger document](job-document.md#triggers), and `count` (1 to 1000, default 10); "
    "beside `schedule` as text, `start_at` says from when to look",
}


def openapi() -> dict[str, Any]:
    """The OpenAPI document, from an application that is never asked anything."""
    parts = dict.fromkeys((part.name for part in dataclasses.fields(Services)), SimpleNamespace(node="", picture=None))
    nobody = cast(Services, SimpleNamespace(**parts))
    return app.create_app(nobody, CONTRACTS, version="", free_pass={0}).api.document


def operations(document: dict[str, Any], *, of_contracts: bool = False) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Those of our own interface, whose failures are problems; or of the contracts of other systems, which have
    pages of their own."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            is_own = "application/problem+json" in operation["responses"]["default"]["content"]
            if is_own is not of_contracts:
                yield method.upper(), path, operation


def routes() -> str:
    groups: dict[str, list[str]] = {}
    for method, path, operation in operations(openapi()):
        groups.setdefault(operation["tags"][0], []).append(one_operation(method, path, operation))
    return sections(part for tag, texts in groups.items() for part in (f"## {tag.capitalize()}", *texts))


def one_operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"### {method} {path}", f"{operation['summary']}.", operation.get("description", "")]
    params = [param for param in operation.get("parameters", ()) if param["in"] != "path"]
    if params:
        rows = [(code(param["name"]), param["in"], kind_of(param["schema"]), described(param)) for param in params]
        parts.append(table(("parameter", "in", "type", ""), rows))
    if "requestBody" in operation:
        sent = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        optional = "" if operation["requestBody"]["required"] else "; may be left out"
        parts.append(f"Body: {BODIES[sent]}{optional}.")
    if "x-permission" in operation:
        parts.append(f"Needs the [permission](../howto/login-and-tls.md#roles) {code(operation['x-permission'])}.")
    return sections([*parts, answers(operation)])


def described(param: dict[str, Any]) -> str:
    value = param["schema"].get("default")
    return f"{param['description']} Default {value}." if value is not None else str(param["description"])


def answers(operation: dict[str, Any]) -> str:
    """One line for what it gives, one for how it fails."""
    given, failures = [], []
    for status, answer in operation["responses"].items():
        media = next(iter(answer.get("content", ())), "")
        if media == "application/problem+json":
            failures += [status] if status != "default" else []
        else:
            schema = answer["content"][media].get("schema", {}) if media else {}
            shown = kind_of(schema) if "$ref" in schema else code(media)
            given.append(f"{status}, {shown or 'nothing'}")
    return f"Gives {'; '.join(given)}.\nFails with {', '.join(failures)}."


def kind_of(schema: dict[str, Any]) -> str:
    """The type of a schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        whole = f"a page of [{name[:-4]}](#{name[:-4].lower()})" if name.endswith("Page") else ""
        return whole or f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(kind_of, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(code(word) for word in schema["enum"])
    if schema.get("const") == "":
        return "nothing"
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return f"{words} {limits(schema)}".strip()


def limits(schema: dict[str, Any]) -> str:
    if schema.get("format") == "date-time":
        return "(a moment)"
    if schema.get("maximum") == model.LARGEST_ID:
        return "(an id)" if schema["minimum"] else "from 0"
    if "minimum" in schema and "maximum" in schema:
        return f"{schema['minimum']} to {schema['maximum']}"
    if "minimum" in schema:
        return f"from {schema['minimum']}"
    return f"of {schema['minLength']} to {schema['maxLength']} characters" if "maxLength" in schema else ""


def shapes() -> str:
    """What answers are made of; pages of something go without saying."""
    found = openapi()["components"]["schemas"]
    fields = {name: schema["properties"] for name, schema in found.items() if schema.get("properties")}
    named = [name for name in sorted(fields) if name not in BODIES and not name.endswith("Page")]
    return sections(one_shape(name, found[name], fields) for name in named)


def one_shape(name: str, schema: dict[str, Any], others: dict[str, Any]) -> str:
    own, intro = schema["properties"], schema.get("description", "")
    for other, theirs in others.items():
        if len(theirs) > 3 and theirs.items() < own.items():
            own = {field: shape for field, shape in own.items() if field not in theirs}
            intro += f" Everything of [{other}](#{other.lower()}), and:"
    rows = [(code(field), kind_of(shape), shape.get("description", "")) for field, shape in own.items()]
    return sections([f"### {name}", intro, table(("field", "type", ""), rows)])


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────

Raised = dict[str, set[tuple[type[errors.Error], str]]]  # code → (class, where a user meets it)
PLACES = {"cli": "command", "client": "command", "migrate.py": "start", "executors": "run", "handlers.py": "run"}


def error_classes() -> dict[str, type[errors.Error]]:
    known = {**vars(errors), **vars(http)}
    return {name: each for name, each in known.items() if isinstance(each, type) and issubclass(each, errors.Error)}


def raised() -> Raised:
    """As the source has them: the code of each class, and those that stand in a call."""
    classes = error_classes()
    found: Raised = {}
    for each in classes.values():
        found.setdefault(each.code, set()).add((each, "start" if each is errors.ConfigError else str(each.status)))
    for path in SOURCE.rglob("*.py"):
        rooms = path.relative_to(SOURCE).parts
        place = PLACES.get(path.name) or next((PLACES[room] for room in rooms[:-1] if room in PLACES), None)
        for kind, named in codes_in(ast.parse(path.read_text()), classes):
            met = "start" if kind is errors.ConfigError else place or str(kind.status)
            found.setdefault(named, set()).add((kind, met))
    return found


def codes_in(tree: ast.AST, classes: dict[str, type[errors.Error]]) -> Iterator[tuple[type[errors.Error], str]]:
    """Codes given to the making of an error, or to a list of problems, which becomes Invalid."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name == "Refusal":  # of the inbox, kept and not raised: docs/howto/enqueue-in-your-transaction.md has them
            continue
        kind = errors.ConfigError if name == "Refused" else classes.get(name)
        for value in [*node.args, *(keyword.value for keyword in node.keywords)]:
            for text in constants(value):
                if text in errors.CODES and (kind or text != "E_POLICY"):  # its problems become Denied
                    yield kind or errors.Invalid, text


def constants(node: ast.AST) -> Iterator[str]:
    """Texts of an expression, but not those of calls within it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node) if not isinstance(node, ast.Call) else ():
        yield from constants(child)


def codes_by_section() -> Iterator[tuple[str, list[str]]]:
    """The codes under the comments that head them in the source."""
    text = inspect.getsource(errors).partition("CODES: dict[str, str] = {")[2]
    for part in text.split("    # ")[1:]:
        yield part.partition("\n")[0], re.findall(r'^    "(E_\w+)"', part, re.M)


def codes() -> str:
    found = raised()
    parts = []
    for title, listed in codes_by_section():
        rows = [one_code(each, found.get(each, set())) for each in listed]
        parts += [f"## {title.capitalize()}", table(("code", "where", "exit", "meaning"), rows)]
    return sections(parts)


def one_code(named: str, found: set[tuple[type[errors.Error], str]]) -> tuple[str, str, str, str]:
    where = {place for _, place in found}
    made = [kind("", []) if kind is http.BadMethod else kind(code=named) for kind, place in found if place != "run"]
    exits = {str(session.exit_code_of(error)) for error in made}
    meaning = errors.CODES[named] if found else f"{errors.CODES[named]} ({LATER.capitalize()}.)"
    return code(named), ", ".join(sorted(where)), ", ".join(sorted(exits)), meaning


# ── states ─────────────────────────────────────────────────────────────────────────────────────────

STATES = {
    "queued": "It waits for an agent with a free slot.",
    "running": "An agent works on it.",
    "blocked": "It waits for its predecessor (`overlap`), for its next attempt (`retry`), for the moment for which it "
    "was ordered (`later`), for others like it (`debounce`), or for another run that "
    "writes what it writes (`destination_busy`).",
    "succeeded": "The work ended well.",
    "failed": "The work ended badly, could not be done, or was lost with its agent too often.",
    "timed_out": "The last attempt ran longer than the job's `timeout`, and was killed.",
    "cancelled": "Somebody, a newer run or the work itself put an end to it.",
    "skipped": "Its moment came and it did not run; the reason says why.",
    "coalesced": "Its moment was missed, and a later run stands for it: `into_run_id` names that run.",
}


def states() -> str:
    rows = [(code(state.word), state.value, STATES[state.word]) for state in model.State]
    return table(("state", "stored as", "meaning"), rows)


def drawing() -> str:
    text = (inspect.getdoc(lifecycle) or "").partition("\n\n")[2].rpartition("\n\n")[0]
    return f"```text\n{text}\n```"


def transitions() -> str:
    rows = [(code(before.word), words(after) or "nothing") for before, after in lifecycle.TRANSITIONS.items()]
    return table(("from", "to"), [("(born)", words(lifecycle.BIRTHS)), *rows])


def words(found: Iterable[model.State]) -> str:
    return ", ".join(code(state.word) for state in sorted(found))


def reasons() -> str:
    """Each with the comment beside it in the source."""
    meanings = dict(re.findall(r'^    \w+ = "(\w+)"  # (.+)$', inspect.getsource(model.Reason), re.M))
    used = reasons_in_use()
    listed = [reason.value for reason in model.Reason if reason.value]
    rows = [(code(each), meanings[each] + ("" if each in used else f" ({LATER})")) for each in listed]
    return table(("reason", "meaning"), rows)


def reasons_in_use() -> set[str]:
    """Reasons that something gives to a run: by name in Python, as text in a query or a call of the store."""
    python = "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "model.py")
    queries = "\n".join(path.read_text() for path in SOURCE.rglob("*.sql"))
    stores = "\n".join(path.read_text() for path in (SOURCE / "stores").rglob("*.py"))
    return {
        reason.value
        for reason in model.Reason
        if f"Reason.{reason.name}" in python or f"'{reason.value}'" in queries or f'"{reason.value}"' in stores
    }


# ── metrics ────────────────────────────────────────────────────────────────────────────────────────


def metrics() -> str:
    return table(("metric", "type", "labels", "meaning"), map(one_metric, metric_families()))


def metric_families() -> list[Any]:
    counts = Metrics()
    counts.finished["succeeded"] = counts.batches["fire"] = 1
    counts.waiting = {"queued": 1}
    counts.dispatches["accepted"] = counts.heartbeats["agent", "ok"] = counts.outside_segments["worker-1"] = 1
    return list(counts.collect())


def one_metric(family: Any) -> tuple[str, str, str, str]:
    labels = sorted({label for sample in family.samples for label in sample.labels})
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return code(name), family.type, ", ".join(map(code, labels)), family.documentation


# ── the program ────────────────────────────────────────────────────────────────────────────────────

# ── tools of assistants ────────────────────────────────────────────────────────────────────────────


def tools() -> str:
    return sections(one_tool(tool) for tool in (*READING, *WRITING))


def one_tool(tool: Tool) -> str:
    rows = [
        (f"{code(name)}{' *' if name in tool.needs else ''}", one_argument(schema), schema["description"])
        for name, schema in tool.takes.items()
    ]
    writes = "\n\nOnly with `--allow-writes`." if tool.writes else ""
    return f"### {tool.name}\n\n{tool.description}{writes}" + (
        f"\n\n{table(('argument', 'takes', ''), rows)}" if rows else ""
    )


def one_argument(schema: dict[str, Any]) -> str:
    words = {"string": "text", "integer": "number", "boolean": "true or false", "array": "list of numbers"}
    kind = ", ".join(map(code, schema["enum"])) if "enum" in schema else words.get(schema["type"], schema["type"])
    span = f" to {schema['maximum']}" if schema.get("maximum", sys.maxsize) < 2**31 - 1 else ""
    return f"{kind}{span}" + (f"; else {code(schema['default'])}" if "default" in schema else "")


# ── explanations ───────────────────────────────────────────────────────────────────────────────────


def explanations() -> str:
    return sections(one_explanation(one) for one in EXPLAINED.values())


def one_explanation(one: Explained) -> str:
    return f"## <a id='{one.code}'></a>{one.code}\n\n{one.means}\n\nWhy: {one.why}\n\nWhat to do: {one.do}"


BLOCKS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "shared-options": shared_options,
    "exit-codes": exit_codes,
    "dry-runs": dry_runs,
    "commands": command_texts,
    "routes": routes,
    "shapes": shapes,
    "codes": codes,
    "states": states,
    "drawing": drawing,
    "transitions": transitions,
    "reasons": reasons,
    "metrics": metrics,
    "explanations": explanations,
    "tools": tools,
}


def fill(text: str) -> str:
    """A page with its blocks as the code has them now."""
    return BLOCK.sub(lambda block: f"{block[1]}{block[2]}\n{BLOCKS[block[1]]()}\n\n", text)


def pages() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(REFERENCE.glob("*.md"))}


def misplaced(texts: Iterable[str]) -> list[str]:
    """Blocks that do not stand on exactly one page."""
    found = [block[1] for text in texts for block in BLOCK.finditer(text)]
    return [name for name in {*BLOCKS, *found} if name not in BLOCKS or found.count(name) != 1]


def main() -> int:
    texts = pages()
    if wrong := misplaced(texts.values()):
        sys.stderr.write(f"these blocks must stand on exactly one page: {', '.join(sorted(wrong))}\n")
        return 1
    stale = {path: made for path, text in texts.items() if (made := fill(text)) != text}
    for path, made in stale.items():
        if "--check" in sys.argv[1:]:
            sys.stderr.write(f"docs/reference/{path.name} is stale: run `make docs`\n")
        else:
            path.write_text(made)
            sys.stdout.write(f"wrote docs/reference/{path.name}\n")
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
