"""The documentation, held against the code: what exists is documented, and what is documented exists.

Each check is a function from texts to complaints. One test gives it the real pages and expects none; another
gives it a page with a fault and expects the fault to be found, so that no check can rot into one that passes
whatever happens.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import operator
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import horae
from horae.config import in_tables
from horae.contracts.admin import declarations
from horae.core import model
from horae.core.alerts.channels import parse_channel
from horae.core.alerts.rules import parse_rule
from horae.core.time import cron
from horae.core.work import kinds, specs
from horae.discovery import resolve
from horae.errors import CODES, Error
from horae.settings import SETTINGS, Setting
from horae.web import documents, openapi

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(path for path in ROOT.glob("examples/**/*") if path.is_file() and path.suffix in (".yaml", ".py"))
README_LINES = 150
# How deep a layer lies. What the core decides is handed to the store.
LEVELS = {"app": 0, "web": 1, "core": 2, "service": 2} | dict.fromkeys(
    ("executors", "sandboxes", "stores", "queues", "files"), 3
)
OF_OTHERS = ("fsync",)  # settings of PostgreSQL
MUST_EXIST = ("jobs_directory", "declarations")  # settings that take only what is there, which it is not here


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_generator()


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def page(name: str) -> str:
    return (REFERENCE / name).read_text()


# ── the checks ─────────────────────────────────────────────────────────────────────────────────────


def unmentioned(words: Iterable[str], text: str) -> list[str]:
    """Words that never stand as code in a text."""
    return [word for word in words if f"`{word}`" not in text]


def without_heading(titles: Iterable[str], text: str) -> list[str]:
    headings = set(re.findall(r"^#+ (.+)$", text, re.M))
    return [title for title in titles if title not in headings]


def blocks(text: str, language: str) -> list[str]:
    """Fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def wrong_jobs(texts: Iterable[str]) -> list[str]:
    """Job documents that `horae submit` would refuse, and alerts that `horae alerts apply` would."""
    complaints = []
    for text in texts:
        try:
            found = documents.read_document(text.encode(), "application/yaml")
            if isinstance(found, dict) and found.keys() == {"channels", "rules"}:
                read_alerts(found)
            else:
                specs.parse_jobs(found)
        except Error as error:
            complaints.append(f"{error.code} {error.message}\n{text}")
    return complaints


def read_alerts(found: dict[str, dict[str, object]]) -> None:
    """As `horae alerts apply` would have it."""
    for name, document in found["channels"].items():
        parse_channel(document, name)
    for name, document in found["rules"].items():
        assert {*parse_rule(document, name).channels} <= found["channels"].keys()


def wrong_declarations(texts: Iterable[str]) -> list[str]:
    """Declarations with which `horae up` would not start."""
    complaints = []
    for text in texts:
        try:
            declarations.read_declaration(documents.read_yaml(text.encode()))
        except Error as error:
            complaints.append(f"{error.code} {error.message}\n{text}")
    return complaints


def wrong_settings(texts: Iterable[str]) -> list[str]:
    known = {setting.name: setting for setting in SETTINGS}
    complaints = []
    for text in texts:
        for name, _, value in in_tables(tomllib.loads(text)):
            if name not in known:
                complaints.append(f"{name} is no setting")
            elif name not in MUST_EXIST and is_refused(known[name], value):
                complaints.append(f"{name} does not take {value!r}")
    return complaints


def is_refused(setting: Setting, value: object) -> bool:
    try:
        setting.kind.read(value)
    except Exception:
        return True
    return False


def wrong_python(texts: Iterable[str]) -> list[str]:
    complaints = []
    for text in texts:
        try:
            ast.parse(text)
        except SyntaxError as error:
            complaints.append(f"{error}\n{text}")
    return complaints


def wrong_commands(texts: Iterable[str]) -> list[str]:
    """Lines such as `$ horae …` that name a command or an option there is not."""
    return [line for text in texts for line in typed(text) if not is_command(line)]


def typed(text: str) -> Iterator[list[str]]:
    for line in re.findall(r"^\$ (?:\w+=\S+ )?(horae .+)$", text, re.M):
        yield shlex.split(line)


def is_command(words: list[str]) -> bool:
    known = {name: (command, context) for name, command, context in generate.program()}
    name, rest = words[0], words[1:]
    while rest and f"{name} {rest[0]}" in known:
        name, rest = f"{name} {rest[0]}", rest[1:]
    command, context = known[name]
    options = {option for param in command.get_params(context) for option in param.opts}
    takes_words = any(generate.is_argument(param) for param in command.get_params(context))
    given = [word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"]
    return set(given) <= options and (takes_words or bool(given) or not rest) and name != "horae"


def wrong_words(text: str) -> list[str]:
    """Code in a sentence that names a command, a path of the project or a setting there is not."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return [word for word in re.findall(r"`([^`\n]+)`", prose) if is_wrong_word(word)]


def is_wrong_word(word: str) -> bool:
    if re.match(r"horae [a-z]", word):
        return not is_command(re.split(r" [^a-z-]", word)[0].split())
    if re.fullmatch(r"(src|tests|docs|examples|bench|campaign|simulation|\.ci)/[\w./-]+", word):
        return not re.search(r"NAME|NNNN", word) and not (ROOT / word).exists()
    named = re.fullmatch(r"([a-z_]+) = .+", word)
    return named is not None and named[1] not in {*(setting.name for setting in SETTINGS), *OF_OTHERS}


def old_schema(text: str) -> list[str]:
    """Numbers of a schema that is not the newest."""
    newest = max(int(path.name[:4]) for path in (ROOT / "src/horae/stores/migrations").glob("*.sql"))
    shown = re.findall(r"schema \d+$|schema \d+ of \d+", text, re.M)
    return [each for each in shown if int(each.split()[-1]) != newest]


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    named = set(re.findall(r"<a id='([\w-]+)'>", prose))
    return named | {slug(heading) for heading in re.findall(r"^#+ (.+)$", prose, re.M)}


def broken_links(path: Path, text: str) -> list[str]:
    """Links to files or headings that are not there; addresses elsewhere are not looked at."""
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)
    complaints = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        file = (path.parent / target).resolve() if target else path
        if not file.exists():
            complaints.append(f"{name_of(path)}: {link}: no such file")
        elif anchor and anchor not in anchors(text if file == path else file.read_text()):
            complaints.append(f"{name_of(path)}: {link}: no such heading")
    return complaints


def unlinked(files: Iterable[Path], texts: Iterable[str]) -> list[str]:
    """Files that no page names by their path below the root."""
    prose = "\n".join(texts)
    return [name_of(path) for path in files if name_of(path) not in prose]


def too_long(text: str, most: int) -> bool:
    return len(text.splitlines()) > most


# ── what exists is documented ──────────────────────────────────────────────────────────────────────


def job_fields() -> set[str]:
    """Every field that may stand in a job document, its triggers and their periods."""
    trigger = openapi.REQUESTS["TriggerDocument"]["anyOf"][0]["properties"]
    period = trigger["period"]["anyOf"][0]["properties"]
    work = {field for kind in kinds.KINDS.values() for field in kind.fields}
    return {*kinds.JOB_FIELDS - {"spec"}, *work, *trigger, *period}


DOCUMENTED: dict[str, tuple[str, list[str]]] = {
    "setting": ("settings.md", [setting.name for setting in SETTINGS]),
    "state": ("states.md", [state.word for state in model.State]),
    "reason": ("states.md", [reason.value for reason in model.Reason if reason.value]),
    "error code": ("errors.md", list(CODES)),
    "metric": ("metrics.md", [generate.one_metric(family)[0].strip("`") for family in generate.metric_families()]),
    "field of a job": ("job-document.md", sorted(job_fields())),
    "cron dialect": ("cron.md", list(cron.DIALECTS)),
    "cron macro": ("cron.md", list(cron.MACROS)),
    "overlap policy": ("job-document.md", [each.name.lower() for each in model.Overlap]),
    "misfire policy": ("job-document.md", [each.name.lower() for each in model.Misfire]),
}
HEADED: dict[str, tuple[str, list[str]]] = {
    "command": ("cli.md", [name for name, _, _ in generate.program() if name != "horae"]),
    "route": ("http.md", [f"{method} {path}" for method, path, _ in generate.operations(generate.openapi())]),
    "kind of work": ("job-document.md", [f"Kind `{kind}`" for kind in kinds.KINDS]),
}


@pytest.mark.parametrize("what", DOCUMENTED)
def test_nothing_is_left_out_of_its_reference_page(what: str):
    name, words = DOCUMENTED[what]

    assert unmentioned(words, page(name)) == []


@pytest.mark.parametrize("client", [horae.Client, horae.SyncClient], ids=["Client", "SyncClient"])
def test_every_method_of_a_client_is_on_its_page(client: type):
    methods = [name for name in vars(client) if callable(getattr(client, name)) and not name.startswith("_")]
    said = (ROOT / "docs" / "howto" / "python-client.md").read_text()

    assert len(methods) > 90
    assert unmentioned([name for name in methods if name != "close"], said) == []


@pytest.mark.parametrize("what", HEADED)
def test_each_has_a_heading_on_its_reference_page(what: str):
    name, titles = HEADED[what]

    assert titles
    assert without_heading(titles, page(name)) == []


def test_a_word_or_heading_that_is_left_out_is_found():
    assert unmentioned(["port", "host"], "the `port` and the host") == ["host"]
    assert without_heading(["horae up", "horae down"], "# x\n\n## horae up\n\nhorae down\n") == ["horae down"]


# ── generated parts are fresh ──────────────────────────────────────────────────────────────────────


def test_every_route_of_a_contract_is_on_the_page_of_a_contract():
    pages = "\n".join(path.read_text() for path in (ROOT / "docs/reference").glob("contract-*.md"))
    routes = [path for _, path, _ in generate.operations(generate.openapi(), of_contracts=True)]
    shown = re.sub(r"[{:]\w+}?", "{}", pages)
    assert len(routes) > 60
    assert [path for path in routes if re.sub(r"{\w+}", "{}", path) not in shown] == []


@pytest.mark.parametrize("path", generate.pages(), ids=name_of)
def test_the_generated_parts_of_a_page_are_fresh(path: Path):
    text = path.read_text()

    assert generate.fill(text) == text, f"{name_of(path)} is stale: run `make docs`"


def test_every_generated_block_stands_on_one_page():
    assert generate.misplaced(generate.pages().values()) == []


def test_pages_with_generated_parts_say_so_in_their_first_line():
    silent = [
        path.name
        for path, text in generate.pages().items()
        if generate.BLOCK.search(text) and "docs/generate.py" not in text.partition("\n")[0]
    ]

    assert silent == []


def test_a_stale_block_and_a_misplaced_one_are_found():
    text = generate.fill(page("settings.md"))
    old = text.replace("`8080`", "`80`")

    assert generate.fill(old) == text
    assert generate.fill(old) != old
    assert generate.misplaced([text, text]) != []
    assert "settings" in generate.misplaced([])


# ── what is documented exists ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_somewhere(path: Path):
    assert broken_links(path, path.read_text()) == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_what_a_page_shows_would_work(path: Path):
    text = path.read_text()

    assert wrong_jobs(blocks(text, "yaml")) == []
    assert wrong_settings(blocks(text, "toml")) == []
    assert wrong_python(blocks(text, "python")) == []
    assert wrong_commands(blocks(text, "console")) == []
    assert wrong_words(text) == []
    assert old_schema("\n".join(blocks(text, "console"))) == []


def test_the_way_of_a_run_passes_functions_that_are_there_and_never_goes_up():
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    steps = re.findall(r"^\| (\w*) ?\| `horae\.([\w.]+):([\w.]+)`", text, re.M)

    assert [step for step, _, _ in steps if step] == [
        "submit", "due", "fire", "claim", "run", "log", "finish", "history", "look",
    ]  # fmt: skip
    for _, module, name in steps:
        assert callable(operator.attrgetter(name)(importlib.import_module(f"horae.{module}")))
    levels = [LEVELS[module.split(".")[0]] for _, module, _ in steps]
    rises = [steps[at][0] for at in range(1, len(steps)) if levels[at] < levels[at - 1]]
    assert all(rises), "a step goes back up in its middle"


@pytest.mark.parametrize(
    ("link", "why"),
    [("nowhere.md", "no such file"), ("glossary.md#nothing", "no such heading"), ("#nothing", "no such heading")],
)
def test_a_broken_link_is_found(link: str, why: str):
    found = broken_links(ROOT / "docs" / "tutorial.md", f"[good](glossary.md#verbs) [bad]({link}) `[code](x.md)`")

    assert found == [f"docs/tutorial.md: {link}: {why}"]


def test_what_would_not_work_is_found():
    assert wrong_jobs(["name: a job without work\n"])
    assert wrong_declarations(["jobs: [{name: a, handler: b}]\n"])
    assert wrong_settings(["prot = 80\nport = 'x'\n"]) == ["prot is no setting", "port does not take 'x'"]
    assert wrong_python(["def :\n"])
    assert wrong_commands(["$ horae runs --job a\n$ horae rums\n$ HORAE_PORT=1 horae runs --jbo a\n"]) == [
        ["horae", "rums"],
        ["horae", "runs", "--jbo", "a"],
    ]


def test_a_word_for_what_is_not_there_is_found():
    words = ("horae rums JOB", "horae runs --jbo", "src/horae/utils.py", "prot = 80", "horae runs show RUN", "horae up",
             "src/horae/errors.py", "src/horae/contracts/NAME/", "port = 80", "x = y")  # fmt: skip

    assert wrong_words(" ".join(f"`{word}`" for word in words)) == [*words[:4], "x = y"]
    assert old_schema("a: schema 3\nb: schema 0 of 2: run\n") == ["schema 3", "schema 0 of 2"]


# ── examples ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.parent.name != "deploy"], ids=name_of)
def test_an_example_can_be_read(path: Path):
    text = path.read_text()
    of_yaml = wrong_declarations if path.parent.name == "declarations" else wrong_jobs

    assert (wrong_python if path.suffix == ".py" else of_yaml)([text]) == []


def jobs_of(path: Path) -> list[Any]:
    document = yaml.safe_load(path.read_text())
    found: list[Any] = document.get("jobs", [document])
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=name_of)
def test_an_example_can_be_submitted_twice_and_its_handlers_are_there(path: Path):
    for job in jobs_of(path):
        assert job.get("key"), f"{job['name']} would be made anew each time"
        if "handler" in job:
            assert resolve(job["handler"], ROOT / "examples" / "jobs")


def test_every_example_is_mentioned_in_the_documentation():
    assert EXAMPLES
    assert unlinked(EXAMPLES, (path.read_text() for path in PAGES)) == []
    assert unlinked([ROOT / "examples" / "nobody.yaml"], ["examples/hello.yaml"]) == ["examples/nobody.yaml"]


# ── the rest ───────────────────────────────────────────────────────────────────────────────────────


def test_the_readme_stays_short():
    assert not too_long((ROOT / "README.md").read_text(), README_LINES)
    assert too_long("line\n" * (README_LINES + 1), README_LINES)


def test_every_page_can_be_reached_from_the_readme():
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        seen.add(path)
        links = re.findall(r"\]\(([^)\s#]+)[^)]*\)", path.read_text())
        near = {(path.parent / link).resolve() for link in links if "://" not in link}
        waiting += [file for file in near - seen if file.suffix == ".md" and file.exists()]

    assert [name_of(path) for path in PAGES if path not in seen] == []


def test_the_targets_that_contributing_names_are_in_the_makefile():
    targets = re.findall(r"^([a-z-]+): .*##", (ROOT / "Makefile").read_text(), re.M)
    text = (ROOT / "CONTRIBUTING.md").read_text()
    mentioned = re.findall(r"`make ([a-z-]+)`", text)

    assert mentioned
    assert [name for name in mentioned if name not in targets] == []
