"""The classes of sync jobs and of sources: which fields each has, and how a sync job and a source are read.

A class with `OPEN` fields came with a later edition of the contract, whose fields are not known here: all are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from horae.contracts.lake import schedules, translation, vocabulary
from horae.contracts.lake.reading import Wanted, class_name, wanted, word
from horae.core.fields import Fields
from horae.core.model import Json
from horae.core.time import moments
from horae.core.work import services, syncs
from horae.core.work.specs import Draft
from horae.errors import Invalid

OPEN: None = None
MODES = {"FullSync": "full", "IncrementalSync": "incremental"}
MODES_SHOWN = {mode: shown for shown, mode in MODES.items()}
DESTINATIONS = translation.DESTINATIONS


class Connector(NamedTuple):
    job_type: str
    needed: tuple[str, ...] = ()
    others: tuple[str, ...] | None = ()

    @property
    def is_open(self) -> bool:
        return self.others is OPEN


_GO_ON = ("incremental_column", "last_synced_value")
_TABLE = ("database_name", "table_name")
_JDBC = (*_GO_ON, "query_statement", "max_fetch_size", "primary_key")
_TOKENS = ("access_token", "refresh_token")
_SHEET = ("spread_sheet_id", "sheet_id")

CONNECTORS: Mapping[str, Connector] = {
    "jdbc_job": Connector("Jdbc", _TABLE, _JDBC),
    "generic_jdbc_job": Connector("GenericJdbc", _TABLE, _JDBC),
    "google_sheets_job": Connector("Google_Sheets", _SHEET, ("schema", "include_header", *_TOKENS)),
    "google_sheets_job_v2": Connector("GoogleSheetsV2", _SHEET, ("schema", "include_header")),
    "amazon_s3_job": Connector(
        "Amazon_S3", ("bucket_name",), ("folder_path", "file_config", "incremental_time", "table_schema")
    ),
    "mongo_db_job": Connector("MongoDb", _TABLE, (*_GO_ON, "flatten_depth", "max_fetch_size")),
    "bigquery_storage_job": Connector(
        "Bigquery", ("project_name", "dataset_name", "table_name"), (*_GO_ON, "selected_columns", "row_restrictions")
    ),
    "ga_job": Connector("Google_Analytics", ("view_id",), ("date_ranges", "metrics", "dimensions", "sorts", *_TOKENS)),
    "ga4_job": Connector("Ga4", ("property_id",), (*_GO_ON, "date_ranges", "metrics", "dimensions")),
    "hubspot_job": Connector("Hubspot", (), ("sub_type", "api_key")),
    "shopify_job": Connector("Shopify", ("table_name",), ("last_synced_value",)),
    "coin_market_cap_job": Connector("CoinMarketCap", (), ("api_key",)),
    "solana_job": Connector(
        "Solana", (), ("dest_transaction_table", "dest_reward_table", "last_synced_value", "retry_time", "is_skip")
    ),
    "facebook_ads_job": Connector("FacebookAds", ("table_name",), ("account_id", "time_range", "date_preset")),
    "google_ads_job": Connector("GoogleAds", ("customer_id", "resource_name"), (*_GO_ON, "query")),
    "tik_tok_ads_job": Connector(
        "TikTokAds", ("advertiser_id", "tik_tok_end_point"), ("tik_tok_report", "last_synced_value")
    ),
    "shopee_job": Connector("Shopee", (), OPEN),
    "lazada_job": Connector("Lazada", (), OPEN),
    "palexy_job": Connector("Palexy", (), OPEN),
    "google_search_console_job": Connector("GoogleSearchConsole", (), OPEN),
    "mixpanel_job": Connector("Mixpanel", (), OPEN),
}
MONGO = ("mongo_db_job", "mongo_db_source")
FULL_ONLY = ("ga_job", "coin_market_cap_job")
SHEETS = ("google_sheets_job", "google_sheets_job_v2")
TABLE_COPIES = ("jdbc_job", "generic_jdbc_job", "mongo_db_job")  # of which one can be made for each table of a database

_CREDENTIALS = ("username", "password")
_LATER_SOURCES = (
    "ga", "hubspot", "coin_market_cap", "shopee", "lazada", "palexy", "google_search_console", "mixpanel",
)  # fmt: skip
SOURCES: Mapping[str, Connector] = {
    "jdbc_source": Connector("Jdbc", ("database_type", "jdbc_url"), _CREDENTIALS),
    "gg_service_account_source": Connector("GoogleServiceAccount", ("credential",)),
    "google_sheet_source": Connector("GoogleSheet", (), _TOKENS),
    "amazon_s3": Connector("S3", ("aws_access_key_id", "aws_secret_access_key"), ("region", "endpoint", "path_style")),
    "mongo_db_source": Connector("MongoDb", (), ("host", "port", *_CREDENTIALS, "tls_configuration", "connection_uri")),
    "google_ads_source": Connector("GoogleAds", ("refresh_token",)),
    "ga4_source": Connector("Ga4", (), OPEN),
    "facebook_ads_source": Connector("FacebookAds", ("access_token",), ("api_url", "api_version")),
    "tik_tok_ads_source": Connector("TikTokAds", ("access_token",), ("api_url",)),
    "shopify_source": Connector("Shopify", ("api_url", "access_token"), ("api_version",)),
    "solana_db_source": Connector("Solana", ("entrypoint",)),
    "tracking_source": Connector("Tracking", ("api_key",), ("source_type",)),
    **{f"{name}_source": Connector(name, (), OPEN) for name in _LATER_SOURCES},
}
DATABASE_TYPES = (
    "MySql", "Oracle", "SqlServer", "Postgres", "BigQuery", "Redshift", "GoogleSheet", "GenericJdbc", "Vertica",
    "Others",
)  # fmt: skip

_TYPES: tuple[tuple[type | tuple[type, ...], str, frozenset[str]], ...] = (
    (int, "a whole number", frozenset({"max_fetch_size", "sheet_id", "flatten_depth", "incremental_time",
                                       "retry_time"})),
    (bool, "true or false", frozenset({"include_header", "is_skip", "path_style"})),
    (list, "a list", frozenset({"primary_key", "selected_columns", "date_ranges", "metrics", "dimensions", "sorts"})),
    (dict, "an object", frozenset({"file_config", "time_range", "tik_tok_report", "tls_configuration"})),
    ((dict, list), "an object", frozenset({"schema", "table_schema"})),
    ((str, dict), "text", frozenset({"credential"})),
    ((str, int), "text", frozenset({"last_synced_value", "port"})),
)  # fmt: skip
_EXPECTED = {name: (types, words_) for types, words_, names in _TYPES for name in names}

COMMON = frozenset({
    "class_name", "org_id", "job_id", "display_name", "name", "job_type", "creator_id", "last_modified", "sync_mode",
    "source_id", "last_successful_sync", "sync_interval_in_mn", "next_run_time", "last_sync_status",
    "current_sync_status", "schedule_time", "dest_database_name", "dest_table_name", "destinations",
})  # fmt: skip
_COMMON_OF_SOURCES = frozenset({"class_name", "org_id", "id", "display_name", "name", "creator_id", "last_modify"})


def job_type(name: str) -> str:
    return CONNECTORS[name].job_type if name in CONNECTORS else vocabulary.OTHERS


def read_sync_job(fields: Fields, *, is_lent: bool) -> Wanted:
    """`is_lent`: workers outside Horae do the work, and know more classes than its agents."""
    name = class_name(fields, CONNECTORS)
    if not is_lent:
        _refuse_mongo(fields, name)
    minutes = fields.number("sync_interval_in_mn", 0, 0, 366 * 24 * 60, whole=True)
    sent = {
        "last_run_time": fields.number("last_successful_sync", 0, 0, schedules.NO_MOMENT, whole=True),
        "sync_interval_in_mn": minutes,
        "last_status": word(fields, "last_sync_status", vocabulary.STATUSES, vocabulary.INITIALIZED),
        "current_status": word(fields, "current_sync_status", vocabulary.STATUSES, vocabulary.INITIALIZED),
    }
    if minutes and "schedule_time" not in fields.values:  # so older rows are read
        fields.values["schedule_time"] = {"class_name": "schedule_minutely", "recur_every": minutes}
    source_id = max(0, fields.number("source_id", 0, -1, syncs.LARGEST_ID, whole=True))
    mode = MODES[word(fields, "sync_mode", MODES, "FullSync")]
    if mode == "incremental":
        _check_incremental(fields, name, is_lent=is_lent)
    own, destinations = _own(fields, CONNECTORS[name], COMMON), _destinations(fields)
    if any(not isinstance(column, str) or not column for column in own.get("primary_key", ())):
        fields.fault("primary_key", "E_TYPE", "a list of names of columns expected")
    table = {each: fields.values.get(each) for each in ("dest_database_name", "dest_table_name")}
    for each, value in table.items():
        if value in (None, ""):
            fields.fault(each, "E_REQUIRED", "a sync needs the table it fills")
    fields.problems.raise_any()
    spec = translation.spec_of(name, source_id, mode, own, translation.destinations_of(destinations, *table.values()))
    found = wanted(fields, vocabulary.SYNC, spec, schedules.read(fields), sent | {"class_name": name})
    synced_at = min(sent["last_run_time"], schedules.LATEST) * moments.MILLISECOND
    return replace(found, draft=replace(found.draft, policy=replace(found.draft.policy, synced_at=synced_at)))


def _refuse_mongo(fields: Fields, name: str) -> None:
    if name in MONGO:
        message = "Horae's agents do not read from MongoDB"
        hint = "export the collection to S3 and sync that, or let workers of your own do it: lake_workers = external"
        fields.fault("class_name", "E_ENUM", message, hint)
        fields.problems.raise_any()


def _check_incremental(fields: Fields, name: str, *, is_lent: bool) -> None:
    """What is new must be known by something, before anything runs."""
    connector = CONNECTORS[name]
    if name in FULL_ONLY or (name in SHEETS and not is_lent):
        fields.fault("sync_mode", "E_FIELD_CONFLICT", f"{name} has nothing that tells what is new: FullSync expected")
    elif "incremental_column" in (connector.others or ()) and not fields.values.get("incremental_column"):
        message = "an IncrementalSync needs the column that tells what is new, such as id or updated_at"
        fields.fault("incremental_column", "E_REQUIRED", message)


def refuse_unreadable(draft: Draft) -> None:
    """Where agents do the work: what none of them can read, or only whole. Workers of one's own may know more."""
    name: str = draft.annotations[vocabulary.NAME]["class_name"]
    service = name.removesuffix("_job")
    described, spec = services.SERVICES.get(service), draft.spec
    if described is None and name not in translation.READABLE:
        hint = 'set lake_workers = "external", and let a worker of your own pull it'
        raise Invalid(
            f"class_name: agents of Horae cannot read from {service}: {hint}", code="E_ENUM", path="class_name"
        )
    if spec["mode"] == MODES["IncrementalSync"] and not spec.get("cursor") and not (described and described.cursor):
        raise Invalid(f"sync_mode: {service} is only copied whole: send FullSync", code="E_ENUM", path="sync_mode")


def _destinations(fields: Fields) -> list[str]:
    found = fields.items("destinations", len(DESTINATIONS), "destinations")
    if not found:
        fields.fault("destinations", "E_EMPTY", "job destination can not be empty")
    if any(not isinstance(each, str) or each not in DESTINATIONS for each in found):
        possible = ", ".join(DESTINATIONS)
        fields.fault("destinations", "E_ENUM", f"invalid job destination, possible values are {possible}")
        return []
    return [each for each in DESTINATIONS if each in found]


def read_source(fields: Fields, *, is_lent: bool) -> tuple[str, str, Json]:
    """(class, name, settings)."""
    name = class_name(fields, SOURCES)
    if not is_lent:
        _refuse_mongo(fields, name)
    if "display_name" not in fields.values:
        fields.fault("display_name", "E_REQUIRED", "a source needs a name")
    shown = fields.text("display_name") or ""
    if name == "jdbc_source" and "database_type" in fields.values:
        word(fields, "database_type", DATABASE_TYPES, "Others")
    config = _own(fields, SOURCES[name], _COMMON_OF_SOURCES)
    fields.problems.raise_any()
    return name, shown, translation.config_of(name, config)


def _own(fields: Fields, connector: Connector, common: frozenset[str]) -> Json:
    """Return the fields that this class has beyond the common ones."""
    is_query = bool(fields.values.get("query_statement"))
    for name in connector.needed:
        if name not in fields.values or (fields.values[name] == "" and not is_query):
            fields.fault(name, "E_REQUIRED", "this class of source needs it")
    known = fields.values.keys() - common if connector.is_open else {*connector.needed, *(connector.others or ())}
    own = {name: value for name, value in fields.values.items() if name in known}
    for name, value in own.items():
        types, expected = _EXPECTED.get(name, (str, "text"))
        if not _fits(value, types) and not (connector.is_open and name not in _EXPECTED):
            fields.fault(name, "E_TYPE", f"{expected} expected")
    return Fields({"settings": own}, fields.path, fields.problems).json("settings", syncs.MAX_OPTIONS)


def _fits(value: Any, types: type | tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return types is bool
    return isinstance(value, types)
