"""Why an emulated operator refuses: the caller broke its limits, or the emulator cannot judge."""

from __future__ import annotations


class OperatorLimit(RuntimeError):
    """An operator was called outside of the dtypes, shapes or layouts its documentation states.

    The device would refuse the same call: this is a finding, not a lack of the emulator.
    """


class MissingReference(NotImplementedError):
    """An operator, one of its modes, or a vendor module has no reference: nothing can be said."""


class EmulatorFault(RuntimeError):
    """A reference implementation failed where its caller kept to the limits: nothing can be said."""


def require(holds: bool, operator: str, limit: str) -> None:
    """Raise :class:`OperatorLimit` with the documented ``limit`` of ``operator`` unless it ``holds``."""
    if not holds:
        raise OperatorLimit(f"{operator}: {limit}")


def lacking(operator: str, what: str) -> MissingReference:
    """The error for a documented mode of ``operator`` that its reference does not cover."""
    return MissingReference(f"npu_emulator: the reference of {operator} does not cover {what}")
