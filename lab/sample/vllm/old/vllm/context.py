from contextlib import contextmanager


@contextmanager
def gpu_context(room, graph_mode=None):
    yield room
