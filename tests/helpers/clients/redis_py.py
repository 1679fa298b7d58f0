#!/usr/bin/env python3
"""The Lock of redis-py, one step at a time.

acquire KEY MS | release KEY TOKEN | extend KEY TOKEN MS
acquire prints the token. Exit status 1: redis-py says that it is not so.
"""
import os
import sys

import redis
from redis.exceptions import LockError

client = redis.Redis(unix_socket_path=os.environ["T"] + "/redis.sock")


def acquire(key, ms):
    lock = client.lock(key, timeout=int(ms) / 1000)
    if not lock.acquire(blocking=False):
        return False
    assert lock.owned() and lock.locked()
    print(lock.local.token.decode())
    return True


def held(key, token):
    lock = client.lock(key, timeout=1)
    lock.local.token = token.encode()
    return lock


def release(key, token):
    held(key, token).release()
    return True


def extend(key, token, ms):
    return held(key, token).extend(int(ms) / 1000, replace_ttl=True)


try:
    sys.exit(0 if globals()[sys.argv[1]](*sys.argv[2:]) else 1)
except LockError:
    sys.exit(1)
