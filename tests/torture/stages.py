"""All stages by name. A module is loaded only when needed, because each needs other programs."""

import importlib

MODULES = {
    "file": "stages_file",
    "redis": "stages_redis", "redis-aof": "stages_redis", "redis-tls": "stages_redis",
    "sentinel": "stages_sentinel", "sentinel-replicas": "stages_sentinel", "sentinel-all-replicas": "stages_sentinel",
    "sentinel-network": "stages_sentinel",
    "cluster": "stages_cluster", "cluster-replicas": "stages_cluster",
    "quorum3": "stages_quorum", "quorum5": "stages_quorum", "quorum3-network": "stages_quorum",
}


class Missing(Exception):
    """A stage is not available on this machine; the text says what is missing."""


def make(name, work_dir, rng):
    """A new stage, which serves and keeps its files below work_dir. Raises Missing."""
    if name not in MODULES:
        raise Missing("there is no stage %r; there are %s" % (name, ", ".join(MODULES)))
    try:
        return importlib.import_module(MODULES[name]).make(name, work_dir, rng)
    except ModuleNotFoundError as error:
        raise Missing("stage %s needs the module %s" % (name, error.name)) from error
    except FileNotFoundError as error:
        raise Missing("stage %s needs the program %s" % (name, error.filename)) from error
    except RuntimeError as error:
        raise Missing("stage %s: %s" % (name, error)) from error
