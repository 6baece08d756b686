"""Take a picture of every page, light and dark, at three widths: `python -m demo.screenshots DATA PICTURES [PAGE…]`.

A server is started on the data of the demonstration (`python -m demo DATA`), given a little of everything that the week
did not bring, and looked at with Chromium. Named pages are those whose name begins so.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from demo.pages import MISSING, addresses

WIDTHS = (360, 1280, 2560)
HEIGHTS = {360: 780, 1280: 900, 2560: 1440}
THEMES = ("light", "dark")
SECONDS = 60.0  # for the server to answer, and for a run to end
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
FLOW = {
    "name": "publish the catalogue", "key": "catalogue", "schedule": "15 5 * * *",
    "tasks": {
        "fetch": {"steps": [{"run": "echo fetched"}]},
        "check": {"needs": ["fetch"], "steps": [{"run": "echo fine"}]},
        "prices": {"needs": ["fetch"], "steps": [{"run": "echo 'ERROR: no price for 17'; exit 1"}]},
        "publish": {"needs": ["check", "prices"], "steps": [{"run": "echo published"}]},
        "tell": {"needs": [{"task": "prices", "on": "failure"}], "steps": [{"run": "echo told"}]},
    },
}  # fmt: skip
FOLLOWER = {"name": "tell the shops", "key": "shops", "steps": [{"run": "true"}], "after": ["catalogue", "load"]}
LOGGED = {
    "name": "load the warehouse", "key": "load", "tags": ["nightly"],
    "steps": [{"name": "load", "run": "seq 300; echo 'ERROR: table orders is locked'; exit 2"}],
}  # fmt: skip


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def _wait(condition: Any, what: str) -> Any:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.2)
    raise SystemExit(f"waited {SECONDS:g} s for {what}")


def _is_up(http: httpx.Client) -> bool:
    try:
        return http.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def furnish(http: httpx.Client) -> dict[str, int]:
    """Make what the week did not bring; return the ids of what has a page of its own."""
    flow = http.post("/v1/jobs", json=FLOW).json()["jobs"][0]["id"]
    loading = http.post("/v1/jobs", json=LOGGED).json()["jobs"][0]["id"]
    follower = http.post("/v1/jobs", json=FOLLOWER).json()["jobs"][0]["id"]
    logged = http.post(f"/v1/jobs/{loading}/run").json()["id"]
    http.post("/v1/users", json={"name": "ann", "role": "admin"})
    http.post("/v1/users", json={"name": "bob", "role": "operator"})
    http.post("/v1/users", json={"name": "ci", "kind": "service", "role": "editor"})
    http.put("/v1/secrets/DB_PASSWORD", json={"value": "correct horse"})
    http.put("/v1/queues/reports", json={"concurrency": 4})
    if not http.get("/v1/tokens").json()["items"]:
        http.post("/v1/tokens", json={"name": "ci", "owner": "ci", "role": "editor"})
    http.post("/v1/grants", json={"who": "bob", "role": "editor", "tag": "nightly"})
    http.put("/v1/alerts/channels/ops", json={"kind": "email", "to": ["ops@example.org"]})
    http.put("/v1/alerts/rules/nights", json={"when": "failure", "channels": ["ops"]})
    job = http.get("/v1/jobs", params={"q": "check backup"}).json()["items"][0]
    http.post(f"/v1/jobs/{job['id']}/pause")
    http.post(f"/v1/jobs/{job['id']}/resume")
    run = http.post(f"/v1/jobs/{flow}/run").json()["id"]
    _wait(lambda: http.get(f"/v1/runs/{run}").json()["state"] == "failed", "the workflow to end")
    _wait(lambda: http.get(f"/v1/runs/{logged}").json()["state"] == "failed", "the run with a log to end")
    return {"flow": flow, "flow_run": run, "job": job["id"], "follower": follower, "run": logged}


def take(url: str, pages: dict[str, str], directory: Path) -> int:
    from playwright.sync_api import sync_playwright

    taken = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for theme in THEMES:
            for width in WIDTHS:
                context = browser.new_context(
                    base_url=url, viewport={"width": width, "height": HEIGHTS[width]}, timezone_id="Europe/Berlin"
                )
                context.add_cookies([{"name": "horae-look", "value": f"{theme}.roomy.Europe/Berlin", "url": url}])
                tab = context.new_page()
                for name, path in pages.items():
                    tab.goto(path, wait_until="load")
                    tab.wait_for_timeout(400)  # for what scripts bring
                    tab.screenshot(path=directory / f"{name}-{theme}-{width}.png", full_page=True)
                    taken += 1
                context.close()
        browser.close()
    return taken


def main() -> None:
    data, directory, *wanted = sys.argv[1:]
    Path(directory).mkdir(parents=True, exist_ok=True)
    port = _free_port()
    argv = ["horae", "up", "--data", data, "--node", "demo", "--port", str(port), "--grpc-port", str(_free_port())]
    argv[0] = str(Path(sys.executable).parent / argv[0])
    with Path(data, "screenshots.log").open("ab") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=url, timeout=30, verify=False) as http:  # noqa: S501 - plain HTTP on loopback
            _wait(lambda: _is_up(http), "the server to answer")
            pages = {**addresses(**furnish(http)), "missing": MISSING}
        chosen = {name: path for name, path in pages.items() if not wanted or name.startswith(tuple(wanted))}
        sys.stdout.write(f"{directory}: {take(url, chosen, Path(directory))} pictures\n")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
