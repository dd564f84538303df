"""Graders of a finished workspace: each looks at what was left there, and believes nothing that was said."""
