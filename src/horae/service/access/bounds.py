"""What an agent may say to be, by its token."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.fields import Fields, Problems
from horae.core.members import is_org_label
from horae.core.model import ANY, Bounds, Node
from horae.core.policy import resources
from horae.errors import Denied

SANDBOX_LABEL = "sandbox:"  # begins the labels that agents find by themselves; that of their organisation is given


def refuse_beyond(bounds: Bounds, node: Node) -> None:
    """Denied where an agent says to be what its token is not good for."""
    if bounds.node not in (ANY, node.name):
        raise _beyond(f"this token is for the agent {bounds.node}, not for {node.name}", f"--node {bounds.node}")
    if ANY not in bounds.kinds and (others := set(node.kinds) - set(bounds.kinds)):
        raise _beyond(
            f"this token is for {_listed('work of the kinds', bounds.kinds)}, not for {', '.join(sorted(others))}",
            f"--kinds {','.join(bounds.kinds)}",
        )
    own = {label for label in node.labels if not label.startswith(SANDBOX_LABEL) and not is_org_label(label)}
    if ANY not in bounds.labels and (others := own - set(bounds.labels)):
        said = _listed("the labels", bounds.labels)
        raise _beyond(f"this token is for {said}, not for {', '.join(sorted(others))}", "fewer labels")
    if beyond := _resources_beyond(bounds, node):
        said = _listed("the resources", bounds.resources)
        raise _beyond(f"this token is for {said}, not for {', '.join(beyond)}", "less of --resource")


def _resources_beyond(bounds: Bounds, node: Node) -> tuple[str, ...]:
    """Return what an agent offers and may not; how much the machine has it finds by itself."""
    if ANY in bounds.resources:
        return ()
    document = {"resources": resources.amounts_of(bounds.resources)}
    most = dict(resources.read_resources(Fields(document, "", Problems())))
    own = {name: amount for name, amount in node.resources.items() if name in most or name not in resources.OF_MACHINE}
    return resources.words_of(sorted((name, amount) for name, amount in own.items() if amount > most.get(name, 0)))


def _listed(what: str, names: Sequence[str]) -> str:
    return f"{what} {', '.join(names)}" if names else what.replace("the ", "no ")


def _beyond(message: str, less: str) -> Denied:
    hint = f"start the agent with {less}, or make another token with `horae token create`"
    return Denied(f"{message}; {hint}", code="E_TOKEN_BOUNDS", hint=hint)
