"""A peer for ../peer.rs with redis-py: the timestamp recipe SETNX key <unix time + timeout + 1>, GET, GETSET, DEL, with its own clock."""
import sys
import time

import redis

server = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
units = {'s': 1, 'ms': 1000}[sys.argv[2]]


def now():
    return int(time.time() * units)


class Lock:
    def take(self, name, ttl, wait):
        """ttl in milliseconds."""
        while True:
            timeout = -(-ttl * units // 1000)
            self.name, self.deadline = name, now() + timeout + 1
            if server.setnx(name, self.deadline):
                return True
            seen = server.get(name)
            if seen is not None and int(seen) < now():
                self.deadline = now() + timeout + 1
                before = server.getset(name, self.deadline)
                if before is None or int(before) < now():
                    return True
            if not wait:
                return False
            time.sleep(0.001)

    def release(self):
        if now() < self.deadline:
            server.delete(self.name)
            return True
        return False


def count(lock, name, ttl, turns):
    """Read, add one, write, and never in one step."""
    for _ in range(turns):
        lock.take(name, ttl, True)
        server.set('count', int(server.get('count') or 0) + 1)
        assert lock.release(), 'its time passed while it counted'


lock = Lock()
print(f'ready {redis.__version__}', flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] in ('try', 'wait'):
        print('held' if lock.take(words[1], int(words[2]), words[0] == 'wait') else 'busy', flush=True)
    elif words[0] == 'release':
        print('released' if lock.release() else 'lost', flush=True)
    elif words[0] == 'count':
        count(lock, words[1], int(words[2]), int(words[3]))
        print('counted, 0 lost', flush=True)
    else:
        raise ValueError(line)
