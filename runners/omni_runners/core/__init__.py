"""The mixins: they know vLLM's runners by the few hooks in references/runner-hooks.md, and no device."""
