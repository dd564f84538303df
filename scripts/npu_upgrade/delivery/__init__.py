"""One signed-off commit of exactly what was proven, or the reason why there is none."""
