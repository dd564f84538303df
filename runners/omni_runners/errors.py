"""What can go wrong, and how it is said: what was wrong, what was expected, what to try."""

from __future__ import annotations


class OmniError(RuntimeError):
    """The base of all errors of this package; its text is meant for the person who reads the response."""

    def __init__(self, what: str, *, expected: str = "", try_: str = "") -> None:
        parts = (what, expected and f"expected: {expected}", try_ and f"try: {try_}")
        super().__init__("; ".join(part for part in parts if part))


class InterfaceError(OmniError):
    """A model does not have the interface that its runner needs; loading it stops."""


class PayloadError(OmniError):
    """A request's tensors could not be delivered; its tokens are not affected."""
