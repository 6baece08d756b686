"""The jobs of the demonstration, each with its nature: how long it takes, and how often it fails."""

from __future__ import annotations

from typing import Any, NamedTuple


class Nature(NamedTuple):
    seconds: float
    failing: float = 0.0  # of its runs


def _job(
    name: str,
    schedule: str,
    seconds: float,
    failing: float = 0.0,
    owner: str = "data",
    zone: str = "Europe/Berlin",
    **more: Any,
) -> tuple[dict[str, Any], Nature, str]:
    command = f"echo '{name}: begin'; sleep {min(seconds, 40):g}; echo done" + ("; exit 1" if failing > 0.8 else "")
    document = {"name": name, "schedule": schedule, "timezone": zone, "steps": [{"run": command}], **more}
    return document, Nature(seconds, failing), owner


JOBS = [
    _job("nightly report", "30 2 * * MON-FRI", 140, 0.08, key="nightly-report", timeout="10m"),
    _job("sync crm contacts", "*/15 * * * *", 22, 0.02),
    _job("sync orders", "*/5 * * * *", 9, 0.01),
    _job("warehouse: refresh revenue", "10 * * * *", 75, 0.03),
    _job("warehouse: refresh churn", "20 */2 * * *", 110, 0.05),
    _job("warehouse: vacuum", "0 4 * * SUN", 240),
    _job("export invoices", "0 6 * * MON-FRI", 48, 0.05, "finance", key="invoices"),
    _job("bank statement import", "15 7-18 * * MON-FRI", 14, 0.04, "finance"),
    _job("dunning letters", "0 9 * * TUE", 30, 0.0, "finance"),
    _job("close the month", "0 18 * * FRIL", 280, 0.0, "finance"),
    _job("exchange rates", "5 17 * * *", 3, 0.06, "finance", zone="America/New_York"),
    _job("backup database", "0 1 * * *", 220, 0.0, "ops", key="backup", priority=8),
    _job("check backup", "30 1 * * *", 40, 0.9, "ops"),
    _job("rotate logs", "0 0 * * *", 5, 0.0, "ops", zone="UTC"),
    _job("certificate expiry", "0 8 * * *", 2, 0.0, "ops", zone="UTC"),
    _job("health of partner api", "*/5 * * * *", 1.2, 0.04, "ops"),
    _job("clean temporary files", "45 * * * *", 6, 0.0, "ops"),
    _job("rebuild search index", "0 3 * * *", 200, 0.12, "search"),
    _job("search: popular terms", "*/30 * * * *", 18, 0.01, "search"),
    _job("train recommendation model", "0 22 * * SAT", 290, 0.0, "ml"),
    _job("score customers", "40 5 * * *", 95, 0.07, "ml"),
    _job("feature store: hourly", "2 * * * *", 55, 0.02, "ml"),
    _job("newsletter", "0 10 * * THU", 65, 0.0, "marketing"),
    _job("campaign figures", "0 */3 * * *", 16, 0.3, "marketing"),
    _job("social media figures", "25 */4 * * *", 12, 0.95, "marketing"),
    _job("price watch", "*/10 6-22 * * *", 8, 0.03, "marketing", zone="Asia/Tokyo"),
    _job("old importer", "0 12 * * *", 20, 0.0, "data", paused=True),
]
