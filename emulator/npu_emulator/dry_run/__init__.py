"""Drive the real engine, workers and model runners on the emulated NPU, scenario by scenario.

Runs inside the environment of a triple: ``python -m npu_emulator.dry_run PLAN.json``. One process imports
everything once and forks for each scenario. The catalogue is plain data and can be read anywhere.
"""
