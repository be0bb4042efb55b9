"""Checks that each driver of Leasehold works: debug builds, a second each, no speeds."""
from . import peers, stampede
from .runner import Failed, Runner
from .workloads import TOGETHER, VARIANTS, loop_arguments, turns_of, violations

SECONDS = 1.0
CASES = [
    # name, arguments of each process
    ('W1 awaited', [['release=await']]),
    ('W1 dropped', [['release=drop']]),
    ('W1 lingering', [['linger_ms=1000']]),
    ('W2', [['workers=64', 'threads=2']]),
    ('W3', [['workers=16', 'keys=one']]),
    ('W4', [['keys=one', 'cs_ms=5']] * 8),
    ('W4h', [['keys=one', 'cs_ms=5', 'think_ms=20']] * 8),
    ('W6', [['mode=idle', 'workers=200', 'settle_ms=100']]),
    ('W5', [[]]),
    ('W5w', [['workers=64', 'threads=2']]),
    ('W5s', [[]]),
    ('W5f', [['keys=one', 'cs_ms=12', 'think_ms=15']] * 8),
    ('W7a', [loop_arguments('W7a')]),
    *TOGETHER.items(),
    ('W7a, as Redisson', [loop_arguments('W7a')]),
    ('W7b, as Redisson', TOGETHER['W7b']),
    ('W8, as Redisson', TOGETHER['W8']),
    ('W6p', [['mode=idle', 'workers=0', 'settle_ms=0']] + [['mode=wait', 'settle_ms=100']] * 8),
]


def run(say, program):
    """The exit status. `program`: the server."""
    programs = peers.build_rust(['leasehold', 'redisson', 'stampede'], peers=False, release=False)
    runner, failed = Runner(say, tries=1, program=program), 0
    try:
        for name, each in CASES:
            workload, _, sketch = name.partition(', as ')
            program = programs[sketch.lower() or 'leasehold']
            try:
                with runner.under(VARIANTS.get(workload, (workload, None))[1]):
                    done = runner.once({'command': [program]}, each, SECONDS, logs=True)
            except Failed as reason:
                say(f'{name}: {reason}')
                failed += 1
                continue
            ops, bad = done.total('ops'), {what: done.total(what) for what in ('violations', 'errors')}
            bad['overlaps'] = violations(workload, turns_of(done)) if len(each) > 1 else 0
            waits = name.startswith('W6')  # no waiter may get the lock
            good = (waits or ops > 0) and not any(bad.values()) and not runner.said()
            say(f'{name}: {ops} cycles', *(f'{count} {what}' for what, count in bad.items()), '' if good else f'FAILED {runner.said()}')
            failed += not good
    finally:
        runner.close()
    return 1 if failed + stampede.smoke(programs['stampede'], say) else 0
