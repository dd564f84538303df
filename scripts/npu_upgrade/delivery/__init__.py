"""One signed-off commit of exactly the files that were proven, or the reason why there is none."""
