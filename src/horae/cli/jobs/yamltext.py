"""Plain data → YAML that people like to read, and that web.documents reads as the same data."""

from __future__ import annotations

from typing import Any

import yaml

from horae.web.documents import is_text


class _Dumper(yaml.CSafeDumper):
    """Without anchors: who reads a job does not look for parts of it elsewhere."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.ScalarNode:
    """Several lines stand as they are; what would be taken for a number or a boolean is quoted."""
    style = "|" if "\n" in value else None if is_text(value) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(document: Any) -> str:
    """Return one YAML document."""
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4096, default_flow_style=False
    )
    return text
