"""Real pipelines of vllm-omni from tiny checkpoints, one module each.

A module has ``OPTIONS`` (of ``vllm serve --omni``), ``DEPLOY`` (the release's deploy file, or nothing) and
``reduce`` for it, ``WORKERS`` (kinds of stages with a worker of their own), ``WITHOUT_NPU`` (whether its
maker has to run without one), ``REDUCED`` (what is smaller than in the release), ``make`` (writes the
checkpoint, and what it is expected to answer where there is a reference) and ``ask``.
"""
