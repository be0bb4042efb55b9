"""The Python peers for ../peer.rs: redis-py, python-redis-lock and pottery."""
import logging
import random
import sys
import time
from importlib import metadata

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

client, counter = sys.argv[1], int(sys.argv[3])
# The default limit of 5 s is shorter than the sleep of python-redis-lock.
server = redis.Redis(port=counter, socket_timeout=None)
# By default redis-py tries for seconds to reach a server that is down.
nodes = {redis.Redis(port=int(port), socket_timeout=None, retry=Retry(NoBackoff(), 0)) for port in sys.argv[2].split(',')}
# python-redis-lock warns each time that a lock is busy.
logging.disable()


class RedisPy:
    """redis-py's own Lock."""

    def take(self, name, ttl, wait):
        self.lock = server.lock(name, timeout=ttl / 1000 if ttl else None, sleep=0.01)
        return self.lock.acquire(blocking=wait)

    def release(self):
        try:
            self.lock.release()
            return True
        except redis.exceptions.LockError:
            return False


class PythonRedisLock:
    """Its waiters sleep in BLPOP until a release of its own kind, or for as long as a lock lasts."""

    def __init__(self):
        import redis_lock
        self.library = redis_lock

    def take(self, name, ttl, wait):
        self.lock = self.library.Lock(server, name, expire=max(1, ttl // 1000) if ttl else None)
        return self.lock.acquire(blocking=wait)

    def release(self):
        try:
            self.lock.release()
            return True
        except self.library.NotAcquired:
            return False


class Pottery:
    """Redlock on one server, or on several."""

    def __init__(self):
        import pottery
        self.library = pottery
        pottery.Redlock._RETRY_DELAY = 0.02

    def take(self, name, ttl, wait):
        self.lock = self.library.Redlock(key=name, masters=nodes, auto_release_time=ttl / 1000)
        return self.lock.acquire(blocking=wait)

    def release(self):
        try:
            self.lock.release()
            return True
        except self.library.ReleaseUnlockedLock:
            return False


def count(peer, name, ttl, turns, who):
    """The counter: read, add one, write, and never in one step."""
    for turn in range(1, turns + 1):
        # python-redis-lock notices a release by Leasehold only by a signal: so it waits one time, and polls the next.
        while not peer.take(name, ttl, client != 'python-redis-lock' or turn % 2):
            time.sleep(0.005)
        count, last, changes, enough = server.mget('count', 'last', 'changes', 'enough')
        if enough:
            peer.release()
            return
        changed = (last or b'').decode() != who
        server.mset({'count': int(count or 0) + 1, 'last': who, 'changes': int(changes or 0) + changed, 'by:' + who: turn})
        # A release is not confirmed if the node with the deciding vote has just ended. The counter shows whether that did harm.
        assert peer.release() or len(nodes) > 1, 'lost while it counted'
        time.sleep(random.uniform(0.001, 0.004))


peers = {'redis-py': (RedisPy, 'redis'), 'python-redis-lock': (PythonRedisLock, 'python-redis-lock'), 'pottery': (Pottery, 'pottery')}
kind, package = peers[client]
peer = kind()
print('ready', metadata.version(package), flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    if verb == 'release':
        print('released' if peer.release() else 'lost', flush=True)
    elif verb == 'count':
        count(peer, words[0], int(words[1]), int(words[2]), words[3])
        print('counted', flush=True)
    else:
        print('held' if peer.take(words[0], int(words[1]), verb == 'wait') else 'busy', flush=True)
