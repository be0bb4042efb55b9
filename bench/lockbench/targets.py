"""The targets of Leasehold, most of them relative to a peer in one run. Those of `scale` name its part in place of a workload."""

class Target:
    """A bound for the `metric` of Leasehold (as `peer`) in `workload`: a number, or a function of the figures of a repetition.
    The function returns the bound and the peer's figure, or None if that was not measured."""

    def __init__(self, workload, peer, metric, text, *, least=None, most=None):
        self.workload, self.peer, self.metric, self.text = workload, peer, metric, text
        self.sign, self.bound = ('<=', most) if least is None else ('>=', least)

    def judge(self, figures):
        """The measured figure, the bound, the peer's figure and the verdict, in one repetition; None if not measured."""
        measured = figures.get((self.peer, self.workload), {}).get(self.metric)
        bound, other = self.bound(figures) if callable(self.bound) else (self.bound, None)
        if measured is None or bound is None:
            return measured, bound, other, None
        met = measured >= bound if self.sign == '>=' else measured <= bound
        return measured, bound, other, met

    def worst(self, repetitions):
        """The judgement of the worst repetition: if it meets the target, all do."""
        judged = [self.judge(figures) for figures in repetitions]
        # A repetition without the peer counts only if no repetition has it.
        for known in ([one for one in judged if one[3] is not None], [one for one in judged if one[0] is not None]):
            if known:
                return max(known, key=self._miss)
        return None, None, None, None

    def _miss(self, judgement):
        """The distance from the target; higher is worse."""
        measured, bound, _, met = judgement
        share = measured / bound if bound else measured
        return met is False, -share if self.sign == '>=' else share


def times(factor, peer, workload, metric, plus=0):
    """A bound: `factor` x the figure of `peer` in the same repetition, and `plus`."""
    def bound(figures):
        other = figures.get((peer, workload), {}).get(metric)
        return (None, None) if other is None else (factor * other + plus, other)
    return bound


def best(factor, workload, metric):
    """A bound: `factor` x the least figure of another library in the same repetition."""
    def bound(figures):
        others = [run[metric] for (peer, of), run in figures.items()
                  if of == workload and metric in run and not peer.startswith(('leasehold', 'bare'))]
        return (factor * min(others), min(others)) if others else (None, None)
    return bound


def pipelined_pair(figures):
    """A bound: the bare pair in batches; less of it if the server has a command that releases a lock without a script."""
    native = figures.get(('leasehold', 'W2'), {}).get('native_op', 0) >= 0.5
    return times(0.9 if native else 1.0, 'limits', 'limits', 'pipelined64.redis_cpu_us_op')(figures)


TARGETS = [
    Target('W1', 'leasehold', 'ops_s', 'release awaited: at least 1.3 x rslock', least=times(1.3, 'rslock', 'W1', 'ops_s')),
    Target('W1', 'leasehold-drop', 'ops_s', 'dropped: at least 1.8 x rslock', least=times(1.8, 'rslock', 'W1', 'ops_s')),
    Target('W1', 'leasehold-linger', 'ops_s', 'lingering: at least 100 x rslock', least=times(100, 'rslock', 'W1', 'ops_s')),
    Target('W1', 'leasehold', 'redis_cpu_us_op', 'Redis CPU a cycle: at most 1.15 x the bare pair',
           most=times(1.15, 'limits', 'limits', 'two-round-trips.redis_cpu_us_op')),
    Target('W1a', 'leasehold', 'ops_s', 'release awaited: at least 0.8 x rslock', least=times(0.8, 'rslock', 'W1a', 'ops_s')),
    Target('W1b', 'leasehold', 'ops_s', 'release awaited: at least 1 x rslock', least=times(1.0, 'rslock', 'W1b', 'ops_s')),
    # Stands for W1 without a spin: nothing turns the spin off, but here it fails. A client that sleeps for each of the two replies has 2.
    Target('W1b', 'leasehold', 'switches_op', 'at most 1 thread switch a cycle', most=1.0),
    Target('W1i', 'leasehold', 'instructions_op', 'at most 32,000 instructions a cycle', most=32_000),
    Target('W2', 'leasehold', 'ops_s', 'at least 1.2 x rslock', least=times(1.2, 'rslock', 'W2', 'ops_s')),
    Target('W2b', 'leasehold', 'ops_s', 'at least 1.5 x rslock', least=times(1.5, 'rslock', 'W2b', 'ops_s')),
    Target('W2i', 'leasehold', 'instructions_op', 'at most 16,000 instructions a cycle', most=16_000),
    Target('W2', 'leasehold', 'redis_cpu_us_op', 'Redis CPU a cycle: at most 1 x the bare pair, 0.9 x with DELIFEQ or DELEX', most=pipelined_pair),
    Target('W2', 'leasehold', 'sent_op', 'at most 2 commands a cycle', most=2.0),
    Target('W2', 'leasehold', 'conns', 'one connection', most=1),
    Target('W3', 'leasehold', 'handoffs_s', 'hand-overs: at least 100 x rslock', least=times(100, 'rslock', 'W3', 'handoffs_s')),
    Target('W3', 'leasehold', 'sent_handoff', 'at most 0.1 commands a hand-over', most=0.1),
    *(Target(workload, 'leasehold', 'violations', 'never two holders at once', most=0) for workload in ('W3', 'W4', 'W4h', 'W4f', 'W5f')),
    Target('W4', 'leasehold', 'util', 'held at least 95 % of the time', least=0.95),
    Target('W4', 'leasehold', 'sent_handoff', 'at most 2.2 commands a hand-over', most=2.2),
    Target('W4', 'leasehold', 'xgap_p50_us', 'gap, median: at most 300 us', most=300),
    Target('W4', 'leasehold', 'xgap_p50_us', 'gap, median: at most 0.65 x rdlock', most=times(0.65, 'rdlock', 'W4', 'xgap_p50_us')),
    Target('W4', 'leasehold', 'xgap_p99_us', 'gap, 99th percentile: at most 2 x its median', most=times(2, 'leasehold', 'W4', 'xgap_p50_us')),
    Target('W4', 'leasehold', 'starved', 'nobody starved', most=0),
    Target('W4h', 'leasehold', 'util', 'held at least 95 % of the time', least=0.95),
    Target('W4h', 'leasehold', 'xgap_p50_us', 'gap, median: at most 0.8 x rdlock', most=times(0.8, 'rdlock', 'W4h', 'xgap_p50_us')),
    Target('W5', 'leasehold', 'pair_p50_us', 'median: at most 1.3 x the bare commands', most=times(1.3, 'bare', 'W5', 'pair_p50_us')),
    Target('W5', 'leasehold', 'pair_p50_us', 'median: at most 0.85 x the best other library measured', most=best(0.85, 'W5', 'pair_p50_us')),
    Target('W5', 'leasehold', 'scripts_node_op', 'at most 2.03 scripts a node and cycle: second rounds are rare', most=2.03),
    Target('W5w', 'leasehold', 'ops_s', 'at least 1.2 x rslock', least=times(1.2, 'rslock', 'W5w', 'ops_s')),
    Target('W5w', 'leasehold', 'ops_s', 'at least 0.6 x the bare commands', least=times(0.6, 'bare', 'W5w', 'ops_s')),
    Target('W5w', 'leasehold', 'scripts_node_op', 'at most 2.03 scripts a node and cycle', most=2.03),
    Target('W5w', 'leasehold', 'sent_node_op', 'at most 2 commands a node and cycle', most=2.0),
    Target('W5s', 'leasehold', 'pair_p50_us', 'a silent server: at most 1.1 x the median of W5',
           most=times(1.1, 'leasehold', 'W5', 'pair_p50_us')),
    Target('W5f', 'leasehold', 'passed', 'who passes one that asked 30 ms earlier: at most 2 % more than on one server',
           most=times(1, 'leasehold', 'W4f', 'passed', plus=0.02)),
    Target('W7a', 'leasehold', 'ops_s', 'readers of one process: at least 100 x what Redisson sends', least=times(100, 'redisson-sketch', 'W7a', 'ops_s')),
    Target('W7a', 'leasehold', 'sent_op', 'at most 0.01 commands a lease', most=0.01),
    Target('W7b', 'leasehold', 'writer_p99_ms', 'wait of the writer, 99th percentile: at most 2 holds and 10 ms', most=20),
    Target('W7b', 'leasehold', 'read_share', 'readers hold for at least 80 % of the time without a writer', least=0.8),
    Target('W8', 'leasehold', 'util', 'at least 95 % of the slots in use', least=0.95),
    *(Target(workload, 'leasehold', 'sent_acquire', 'at most 2.2 commands a lease', most=2.2) for workload in ('W7b', 'W8')),
    *(Target(workload, 'leasehold', 'violations', 'never a holder too many', most=0) for workload in ('W7b', 'W8', 'W9')),
    # A worker without a turn in 8 s starves. How many turns each had is in the table.
    *(Target(workload, 'leasehold', 'min_worker', 'each worker gets through', least=1) for workload in ('W7b', 'W8', 'W9')),
    Target('W9', 'leasehold', 'handoffs_s', 'hand-overs: at least 2 x redlock 5', least=times(2, 'node-redlock5b', 'W9', 'handoffs_s')),
    Target('W6', 'leasehold', 'sent_s', 'at most 1 command a second for 200 waiters of one process', most=1.0),
    Target('W6p', 'leasehold', 'sent_s', 'at most 40 commands a second for 200 processes', most=40.0),
    Target('renewal', 'leasehold', 'client_cpu_us_renewal', 'CPU of the client for a renewal: at most 3.5 us', most=3.5),
    Target('memory', 'leasehold', 'client_bytes_per_held_lease', 'at most 900 bytes in the client for a held lease', most=900),
    Target('phase', 'leasehold', 'release_ms', 'a release before 10,000 readers stops the server for at most 2 ms', most=2),
    *(Target(part, 'leasehold', 'most_ms', 'a crashed holder: the waiter starts at most 100 ms after its TTL', most=100)
      for part in ('crash.holder', 'crash.holder.quorum')),
    *(Target(f'failover.{kind}.{what}', 'leasehold', 'most_ms', text, most=bound) for kind in ('cluster', 'sentinel')
      for what, text, bound in (('confirmed', 'a failover: the last of 1,000 leases confirmed within 1 s', 1000),
                                ('first', 'a failover: the first waiter served within 2 s', 2000))),
]
