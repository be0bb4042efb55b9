"""Redlock on several servers with pottery: prints held or busy. Arguments: the name, and the ports of the servers."""
import sys

import pottery
import redis

name, *ports = sys.argv[1:]
lock = pottery.Redlock(key=name, masters={redis.Redis(port=int(port)) for port in ports}, auto_release_time=30)
print('held' if lock.acquire(blocking=False) else 'busy')
