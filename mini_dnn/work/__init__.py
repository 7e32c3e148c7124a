"""Lists of independent items, computed by any `concurrent.futures.Executor`: see `run.run_items`."""

from mini_dnn.work.engine import Engine
from mini_dnn.work.engines import EXECUTORS, find_engine
from mini_dnn.work.items import Item, Work, digest
from mini_dnn.work.local import Local
from mini_dnn.work.profile import Profile, read_profile
from mini_dnn.work.run import Found, run_items

__all__ = [
    "EXECUTORS",
    "Engine",
    "Found",
    "Item",
    "Local",
    "Profile",
    "Work",
    "digest",
    "find_engine",
    "read_profile",
    "run_items",
]
