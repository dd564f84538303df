"""Keep Ascend NPU model runners and models in step with a moving vLLM.

Data flows one way: ``sources -> pycode -> upgrade -> audit -> gates -> deliver``;
``commands`` sits on top of all of them and nothing imports it back.
"""

__version__ = "0.1.0"
