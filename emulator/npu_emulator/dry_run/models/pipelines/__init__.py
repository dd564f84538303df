"""Real pipelines of vllm-omni from tiny checkpoints, one module each.

A module has ``ARCHITECTURE`` (the name by which the release knows the model), ``OPTIONS`` (of ``vllm
serve --omni``), ``DEPLOY`` (the release's own deploy file, or none) and ``reduce`` for it, ``WORKERS`` (kinds
of stages with a worker of their own), ``WITHOUT_NPU`` (whether its maker has to run without one), ``make``
(writes the checkpoint, and what it is expected to answer where there is a reference) and ``ask``. What is
smaller than in the release is told by its scenario in the catalogue.
"""
