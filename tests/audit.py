"""`make audit`: what is known against what we install, secrets that lie in the repository, and licences.

    vulnerabilities   pip-audit, of every version in constraints.txt; NOT CHECKED where its database is out of reach
    secrets           keys and tokens in any file that git knows, by their form
    licences          of everything installed here, from its own metadata

What is found ends it with 1. What could not be looked at is said, and is no success of that part.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP_AUDIT = "pip-audit==2.10.1"
SECONDS = 600

# By the form that their makers gave them, so that scanners find them.
SECRETS = {
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{16}",
    "a key of AWS": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a token of GitHub": r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60})",
    "a token of GitLab": r"\bglpat-[A-Za-z0-9_-]{20}",
    "a token of Slack": r"\bxox[abprs]-[A-Za-z0-9-]{20}",
    "a key of Google": r"\bAIza[A-Za-z0-9_-]{35}\b",
    "a token of PyPI": r"\bpypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{20}",
    "a token of Horae": r"\bhorae_[uas]_[0-9]+_[A-Za-z0-9_-]{43}\b",
    "a JWT": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}",
}
_SECRET = {name: re.compile(form) for name, form in SECRETS.items()}

# What may be used beside Apache-2.0 code that others distribute; whatever else comes is looked at by somebody first.
LICENCES = re.compile(
    r"\b(?:0BSD|Apache|BSD|CC0|CNRI-Python|HPND|ISC|LGPL|Lesser General Public|MIT|MIT-0|MPL|Mozilla|PSF|Python "
    r"Software Foundation|Public Domain|Unlicense|Zlib)\b",
    re.IGNORECASE,
)
TOOLS = {"codespell"}  # of development: called, neither imported nor distributed


def secrets_in(text: str) -> Iterator[str]:
    return (name for name, form in _SECRET.items() if form.search(text))


def find_secrets() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    found = []
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        text = path.read_bytes().decode(errors="replace") if path.is_file() else ""
        found += [f"{name} holds {what}" for what in secrets_in(text)]
    return found


def licence_of(each: metadata.Distribution) -> str:
    about = each.metadata
    said = about.get("License-Expression") or ""
    classified = [
        line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License")
    ]
    lines = (about.get("License") or "").strip().splitlines()
    return said or "; ".join(classified) or (lines[0][:80] if lines else "")


def list_licences() -> list[str]:
    """Prints them all; returns those that somebody has to look at."""
    doubtful = []
    for each in sorted(metadata.distributions(), key=lambda it: it.metadata["Name"].lower()):
        name, licence = f"{each.metadata['Name']} {each.version}", licence_of(each)
        print(f"  {name:<40} {licence or 'UNKNOWN'}")
        if each.metadata["Name"] not in {"horae", *TOOLS} and not LICENCES.search(licence):
            doubtful.append(f"{name} has the licence {licence or 'UNKNOWN'}")
    return doubtful


def find_vulnerabilities() -> tuple[list[str], str]:
    """(what is known, why nothing could be known)."""
    argv = [str(Path(sys.executable).parent / "uv"), "tool", "run", "--from", PIP_AUDIT, "pip-audit"]
    argv += ["--no-deps", "--disable-pip", "--format", "json", "-r", str(ROOT / "constraints.txt")]
    try:
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
        told = json.loads(done.stdout)["dependencies"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        return [], f"pip-audit could not be run: {error}"
    known = [
        f"{one['name']} {one['version']}: {each['id']}, mended in {', '.join(each['fix_versions']) or 'no version yet'}"
        for one in told
        for each in one.get("vulns", ())
    ]
    skipped = sum("skip_reason" in one for one in told)
    return (
        known,
        f"of {skipped} of {len(told)} versions the database told nothing: is it out of reach?" if skipped else "",
    )


def main() -> int:
    print("licences:")
    licences = list_licences()
    secrets = find_secrets()
    known, unchecked = find_vulnerabilities()
    for part, found in (("licences", licences), ("secrets", secrets), ("vulnerabilities", known)):
        for line in found:
            print(f"audit: {part}: {line}")
        state = f"{len(found)} found" if found else "none found"
        print(f"audit: {part}: {f'NOT CHECKED: {unchecked}' if part == 'vulnerabilities' and unchecked else state}")
    return 1 if licences or secrets or known else 0


if __name__ == "__main__":
    sys.exit(main())
