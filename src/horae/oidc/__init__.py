"""OpenID Connect, as its client: any provider that can be found by discovery."""

from __future__ import annotations
