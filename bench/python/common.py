"""Shared code of the Python drivers. ../lockbench/runner.py has the protocol."""
import json
import os
import random
import sys
import threading
import time

now = time.monotonic_ns


class Cfg:
    def __init__(self):
        given = dict(word.split('=', 1) for word in sys.argv[1:] if '=' in word)
        self.peer = given['peer']
        self.mode = given.get('mode', 'loop')
        self.port = int(given.get('port', 6379))
        self.workers = int(given.get('workers', 1))
        self.one = given.get('keys') == 'one' or self.mode != 'loop'
        self.prefix = given.get('prefix', 'bench')
        self.secs = float(given.get('secs', 5))
        self.held = float(given.get('cs_ms', 0)) / 1000
        self.think = float(given.get('think_ms', 0)) / 1000
        self.ttl = float(given.get('ttl_ms', 10000)) / 1000
        self.log = given.get('log')

    def key(self, worker):
        return f'{self.prefix}:one' if self.one else f'{self.prefix}:{worker}'


class Shared:
    """Checks that one worker at a time is in the critical section."""

    def __init__(self):
        self.inside = self.violations = self.changes = 0
        self.last = None
        self.end = 0

    def enter(self, worker):
        self.inside += 1
        if self.inside != 1:
            self.violations += 1
        if self.last != worker:
            self.last = worker
            if now() < self.end:
                self.changes += 1

    def leave(self):
        self.inside -= 1


def ready():
    print('READY', flush=True)
    words = sys.stdin.readline().split()
    return int(words[1]) if len(words) > 1 else now()


def sleep_until(moment):
    time.sleep(max(0, moment - now()) / 1e9)


def quantile(values, share):
    return values[round((len(values) - 1) * share)] / 1000 if values else 0.0


def report(cfg, end, records, errors, shared):
    """`records`: per worker a list of (requested, acquired, release_called, release_returned)."""
    if cfg.log:
        with open(cfg.log, 'w') as log:
            for worker, mine in enumerate(records):
                for record in mine:
                    print(*record, worker, file=log)
    done = [[r for r in mine if r[3] <= end] for mine in records]
    flat = [r for mine in done for r in mine]
    pair = sorted(r[1] - r[0] + r[3] - r[2] for r in flat)
    wait = sorted(r[1] - r[0] for r in flat)
    print(json.dumps(dict(
        ops=len(pair), secs=cfg.secs, pair_p50_us=quantile(pair, .5), pair_p99_us=quantile(pair, .99),
        acq_p50_us=quantile(wait, .5), acq_p99_us=quantile(wait, .99), acq_max_us=quantile(wait, 1.0),
        acq_mean_us=sum(wait) / 1000 / max(1, len(wait)),
        changes=shared.changes, violations=shared.violations, errors=errors,
        min_worker=min(map(len, done), default=0), max_worker=max(map(len, done), default=0))), flush=True)
    sys.stdin.readline()
    os._exit(0)


def wait(cfg, peer, shared):
    if cfg.mode == 'idle':
        peer.hold(cfg.key(0))

    def waiter():
        while True:
            try:
                peer.release(peer.acquire(cfg.key(0)))
            except Exception:
                pass
    for _ in range(cfg.workers):
        threading.Thread(target=waiter, daemon=True).start()
    time.sleep(3)
    end = ready() + int(cfg.secs * 1e9)
    sleep_until(end)
    report(cfg, end, [], 0, shared)


def main(cfg, peer):
    """`peer` has acquire(key) -> guard, release(guard) and hold(key)."""
    shared = Shared()
    if cfg.mode != 'loop':
        wait(cfg, peer, shared)

    records = [[] for _ in range(cfg.workers)]
    errors = [0] * cfg.workers
    warm = threading.Barrier(cfg.workers + 1)
    go = threading.Event()
    begin = 0

    def work(worker):
        private = f'{cfg.prefix}:warm:{os.getpid()}:{worker}'
        for _ in range(20):
            try:
                peer.release(peer.acquire(private))
            except Exception as error:
                print(f'warm-up: {error!r}', file=sys.stderr)
        warm.wait()
        go.wait()
        sleep_until(begin)
        key, mine, end = cfg.key(worker), records[worker], shared.end
        requested = now()
        while now() < end:
            try:
                guard = peer.acquire(key)
            except Exception:
                errors[worker] += 1
                continue
            acquired = now()
            if cfg.one:
                shared.enter(worker)
            if cfg.held:
                time.sleep(cfg.held)
            if cfg.one:
                shared.leave()
            called = now()
            try:
                peer.release(guard)
            except Exception:
                errors[worker] += 1
            mine.append((requested, acquired, called, now()))
            if cfg.think:
                time.sleep(cfg.think * (0.5 + random.random()))
            requested = now()

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(cfg.workers)]
    for thread in threads:
        thread.start()
    warm.wait()
    begin = ready()
    shared.end = begin + int(cfg.secs * 1e9)
    go.set()
    for thread in threads:
        thread.join()
    report(cfg, shared.end, records, sum(errors), shared)
