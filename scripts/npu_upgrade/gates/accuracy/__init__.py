"""Accuracy of a served model: measured by lm_eval, held against the values a config names."""
