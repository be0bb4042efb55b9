"""The Python peers: peer=redis_py|python_redis_lock, with their own defaults."""
import redis

from common import Cfg, main


class RedisPy:
    """redis-py's Lock, one thread per worker."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.redis = redis.Redis(port=cfg.port, max_connections=10000)

    def acquire(self, key):
        lock = self.redis.lock(key, timeout=self.cfg.ttl)
        assert lock.acquire()
        return lock

    def release(self, lock):
        lock.release()

    def hold(self, key):
        self.held = self.redis.lock(key, timeout=120)
        assert self.held.acquire()


class PythonRedisLock:
    """python-redis-lock: SET NX, and BLPOP to be woken; one thread per worker."""

    def __init__(self, cfg):
        import redis_lock
        self.lock = redis_lock.Lock
        self.ttl = int(cfg.ttl)
        self.redis = redis.StrictRedis(port=cfg.port, max_connections=10000)

    def acquire(self, key):
        lock = self.lock(self.redis, key, expire=self.ttl)
        assert lock.acquire()
        return lock

    def release(self, lock):
        lock.release()

    def hold(self, key):
        self.held = self.lock(self.redis, key, expire=120)
        assert self.held.acquire()


if __name__ == '__main__':
    config = Cfg()
    main(config, {'redis_py': RedisPy, 'python_redis_lock': PythonRedisLock}[config.peer](config))
