"""Tables that last, for a Spark that lives as long as one query: its catalog is in memory, and the registry fills it.

    restore ──► the tables that the query names ──► the statement ──► keep: what it changed goes to the registry

Each attempt makes its tables in a directory of its own, so what one that was killed left is in nobody's way.

What must stay true: what a statement that failed did to the catalog is not kept.
"""

from __future__ import annotations

from typing import Any

from horae.core.model import Json
from horae.core.work.queries import names_in, tables_written
from horae.executors.spark.registry import Entry, Name, Registry

DEFAULT = "default"
MANAGED, EXTERNAL, VIEW, DATABASE = "managed", "external", "view", "database"
_OF_ALL = frozenset({"show", "drop"})  # begin statements about more than they name


class Tables:
    """`session` is Spark's own, in Java, not that of its Connect server: both have one catalog."""

    def __init__(self, registry: Registry, session: Any, jvm: Any, own: str) -> None:
        self._registry = registry
        self._session = session
        self._jvm = jvm
        self._own = own  # the directory of what this attempt makes
        self._catalog = session.sharedState().externalCatalog()
        self._before: dict[Name, str] = {}

    def restore(self, query: str) -> list[str]:
        """Give Spark what the query needs; what could not be restored, and why."""
        entries = self._wanted(query)
        for entry in entries:
            if entry.about["kind"] == DATABASE:
                self._session.sql(entry.about["ddl"])
        failures = self._restore_all([entry for entry in entries if entry.about["kind"] != DATABASE])
        self._before = self._seen()
        return failures

    def _wanted(self, query: str) -> list[Entry]:
        """Databases, the tables that the query names, and those that its views name."""
        entries = self._registry.entries
        words = names_in(query)
        if not words or words[0] in _OF_ALL:
            return entries
        named, count = set(words), -1
        while count < len(named):
            count = len(named)
            for entry in entries:
                if entry.name[1] in named and entry.about["kind"] == VIEW:
                    named.update(names_in(entry.about["ddl"]))
        return [entry for entry in entries if entry.name[1] in named or entry.about["kind"] == DATABASE]

    def _restore_all(self, entries: list[Entry]) -> list[str]:
        """Views after what they are of."""
        failures: dict[Name, str] = {}
        for entry in sorted(entries, key=lambda entry: entry.about["kind"] == VIEW):
            self._try(entry, failures)
        left = len(failures) + 1
        while failures and len(failures) < left:
            left = len(failures)
            for entry in [entry for entry in entries if entry.name in failures]:
                del failures[entry.name]
                self._try(entry, failures)
        return [f"{'.'.join(name)} could not be restored: {why}" for name, why in failures.items()]

    def _try(self, entry: Entry, failures: dict[Name, str]) -> None:
        try:
            self._session.sql(entry.about["ddl"])
            if entry.about["kind"] == MANAGED:
                self._own_again(entry.name)
        except Exception as error:
            failures[entry.name] = str(error).strip().splitlines()[-1]

    def _own_again(self, name: Name) -> None:
        """A table that is made at a place is none of Spark's own, whose rows go when it is dropped: say that it is."""
        table = self._catalog.getTable(*name)
        members = [table.productElement(number) for number in range(table.productArity())]
        kinds = getattr(self._jvm, "org.apache.spark.sql.catalyst.catalog.CatalogTableType$")
        members[1] = getattr(kinds, "MODULE$").MANAGED()
        self._catalog.alterTable(table.copy(*members))

    def _seen(self) -> dict[Name, str]:
        """Return all that is in Spark's catalog, as Spark describes it."""
        found: dict[Name, str] = {}
        for database in _lines(self._catalog.listDatabases()):
            found[database, ""] = self._catalog.getDatabase(database).toString()
            for table in _lines(self._catalog.listTables(database)):
                found[database, table] = self._catalog.getTable(database, table).toString()
        return found

    def keep(self, query: str) -> None:
        """Keep what the statement changed: what is new before what is gone; and that it filled what it filled."""
        after = self._seen()
        for written in tables_written(query):
            database, _, table = written.partition(".")
            name = (database, table)
            if table and name in after and after[name] == self._before.get(name):
                self._registry.note_rows(name)
        for name in sorted(after):
            if after[name] != self._before.get(name):
                self._registry.put(name, self._about(name))
        for name in sorted(self._before.keys() - after.keys(), reverse=True):
            self._registry.drop(name)

    def _about(self, name: Name) -> Json:
        database, table = name
        if not table:
            return {"kind": DATABASE, "ddl": self._database_ddl(database)}
        found = self._catalog.getTable(database, table)
        kind = str(found.tableType().name()).lower()
        ddl = str(self._session.sql(f"SHOW CREATE TABLE `{database}`.`{table}`").head().getString(0))
        if kind == VIEW:
            return {"kind": VIEW, "ddl": ddl}
        location = str(found.location().toString())
        placed = ddl if kind == EXTERNAL else f"{ddl.rstrip()}\nLOCATION {_quoted(location)}"
        return {"kind": kind, "ddl": placed, "location": location}

    def _database_ddl(self, name: str) -> str:
        """Return a place of its own is kept only where somebody named one."""
        found = self._catalog.getDatabase(name)
        place, comment = str(found.locationUri().toString()), str(found.description())
        more = f" COMMENT {_quoted(comment)}" if comment else ""
        more += "" if f"/{self._own}" in place else f" LOCATION {_quoted(place)}"
        return f"CREATE DATABASE IF NOT EXISTS `{name}`{more}"


def _lines(names: Any) -> list[str]:
    """Return a sequence of Scala. Names have letters, digits and _ only."""
    return [name for name in str(names.mkString("\n")).split("\n") if name]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
