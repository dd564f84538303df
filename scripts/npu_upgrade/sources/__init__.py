"""A source (package index, git ref, folder) as a read-only tree; releases, pairs and pins.

Knows nothing of Python code or of upgrading; nothing it reads is imported, built or run.
"""

from npu_upgrade.sources.index import Release, project_files, releases_of
from npu_upgrade.sources.remote_wheel import peek_file
from npu_upgrade.sources.simplepage import ReleaseFile
from npu_upgrade.sources.spec import Spec, parse_spec
from npu_upgrade.sources.tree import SourceTree, open_source

__all__ = [
    "Release",
    "ReleaseFile",
    "SourceTree",
    "Spec",
    "open_source",
    "parse_spec",
    "peek_file",
    "project_files",
    "releases_of",
]
