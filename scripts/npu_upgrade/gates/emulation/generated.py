"""What the build of a package would have generated, for a tree that is imported without being built."""

from __future__ import annotations

from packaging.version import Version

_BUILD_INFO = "vllm_ascend/_build_info.py"
_DEVICE = "__device_type__ = 'A2'\n__soc_version__ = 'ASCEND910B1'\n"  # releases read the one or the other


def generated_files(top: str, version: str, present: set[str]) -> dict[str, bytes]:
    """The generated files of the package ``top``: its version where it is missing, vllm-ascend's device."""
    texts = {}
    if f"{top}/_version.py" not in present:
        texts[f"{top}/_version.py"] = _version_text(version)
    if top == "vllm_ascend":  # a checkout's own may be for another device
        texts[_BUILD_INFO] = _DEVICE
    return {path: text.encode() for path, text in texts.items()}


def _version_text(version: str) -> str:
    return (
        f"__version__ = version = {version!r}\n"
        f"__version_tuple__ = version_tuple = {Version(version).release!r}\n"
        "__commit_id__ = commit_id = None\n"
    )
