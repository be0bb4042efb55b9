"""The targets of Leasehold, most of them relative to a peer in one run."""

# Another machine's figures for a peer that cannot be installed here: rueidislock, in Go, did 3,400 hand-overs a second
# in W3 where rslock did 11,200 cycles a second in W1 on a multi_thread runtime.
RUEIDISLOCK_W3 = 3400
RSLOCK_W1 = 11200


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


def times(factor, peer, workload, metric):
    """A bound: `factor` x the figure of `peer` in the same repetition."""
    def bound(figures):
        other = figures.get((peer, workload), {}).get(metric)
        return (None, None) if other is None else (factor * other, other)
    return bound


def rslock_speed(figures):
    """The speed of this machine in one repetition, relative to the machine of the rueidislock figure."""
    for workload in ('W1m', 'W1'):
        ops = figures.get(('rslock', workload), {}).get('ops_s')
        if ops:
            return ops / RSLOCK_W1
    return None


def scaled_rueidislock(figures):
    speed = rslock_speed(figures)
    return (None, None) if speed is None else (100 * RUEIDISLOCK_W3 * speed, RUEIDISLOCK_W3 * speed)


TARGETS = [
    Target('W1', 'leasehold', 'ops_s', 'release awaited: at least 1.1 x rslock', least=times(1.1, 'rslock', 'W1', 'ops_s')),
    Target('W1', 'leasehold-drop', 'ops_s', 'dropped: at least 1.8 x rslock', least=times(1.8, 'rslock', 'W1', 'ops_s')),
    Target('W1', 'leasehold-linger', 'ops_s', 'lingering: at least 100 x rslock', least=times(100, 'rslock', 'W1', 'ops_s')),
    Target('W1', 'leasehold', 'redis_cpu_us_op', 'Redis CPU a cycle: at most 1.1 x rslock', most=times(1.1, 'rslock', 'W1', 'redis_cpu_us_op')),
    Target('W1a', 'leasehold', 'ops_s', 'release awaited: at least 0.8 x rslock', least=times(0.8, 'rslock', 'W1a', 'ops_s')),
    Target('W2', 'leasehold', 'ops_s', 'at least 1.3 x rslock', least=times(1.3, 'rslock', 'W2', 'ops_s')),
    Target('W2', 'leasehold', 'redis_cpu_us_op', 'Redis CPU a cycle: at most 1.2 x rslock', most=times(1.2, 'rslock', 'W2', 'redis_cpu_us_op')),
    Target('W2', 'leasehold', 'sent_op', 'at most 2 commands a cycle', most=2.0),
    Target('W2', 'leasehold', 'conns', 'one connection', most=1),
    Target('W3', 'leasehold', 'handoffs_s', 'hand-overs: at least 100 x rslock', least=times(100, 'rslock', 'W3', 'handoffs_s')),
    Target('W3', 'leasehold', 'handoffs_s', 'hand-overs: at least 100 x rueidislock, scaled to this machine', least=scaled_rueidislock),
    Target('W3', 'leasehold', 'sent_handoff', 'at most 0.1 commands a hand-over', most=0.1),
    *(Target(workload, 'leasehold', 'violations', 'never two holders at once', most=0) for workload in ('W3', 'W4', 'W4h')),
    Target('W4', 'leasehold', 'util', 'held at least 95 % of the time', least=0.95),
    Target('W4', 'leasehold', 'sent_handoff', 'at most 2.2 commands a hand-over', most=2.2),
    Target('W4', 'leasehold', 'xgap_p50_us', 'gap, median: at most 300 us', most=300),
    Target('W4', 'leasehold', 'xgap_p50_us', 'gap, median: at most 0.65 x rdlock', most=times(0.65, 'rdlock', 'W4', 'xgap_p50_us')),
    Target('W4', 'leasehold', 'xgap_p99_us', 'gap, 99th percentile: at most 2 x its median', most=times(2, 'leasehold', 'W4', 'xgap_p50_us')),
    Target('W4', 'leasehold', 'starved', 'nobody starved', most=0),
    Target('W4h', 'leasehold', 'util', 'held at least 95 % of the time', least=0.95),
    Target('W4h', 'leasehold', 'xgap_p50_us', 'gap, median: at most 0.8 x rdlock', most=times(0.8, 'rdlock', 'W4h', 'xgap_p50_us')),
    Target('W5', 'leasehold', 'pair_p50_us', 'median: at most 1.2 x the bare commands', most=times(1.2, 'bare', 'W5', 'pair_p50_us')),
    Target('W5', 'leasehold', 'pair_p50_us', 'median: at most 0.75 x rslock', most=times(0.75, 'rslock', 'W5', 'pair_p50_us')),
    Target('W5', 'leasehold', 'scripts_node_op', 'at most 2.03 scripts a node and cycle: second rounds are rare', most=2.03),
    Target('W5w', 'leasehold', 'ops_s', 'at least 2.8 x rslock', least=times(2.8, 'rslock', 'W5w', 'ops_s')),
    Target('W5w', 'leasehold', 'ops_s', 'at least 0.75 x the bare commands', least=times(0.75, 'bare', 'W5w', 'ops_s')),
    Target('W5w', 'leasehold', 'sent_node_op', 'at most 2 commands a node and cycle', most=2.0),
    Target('W5s', 'leasehold', 'pair_p50_us', 'a silent server: at most 1.1 x the median of W5',
           most=times(1.1, 'leasehold', 'W5', 'pair_p50_us')),
    Target('W6', 'leasehold', 'sent_s', 'at most 1 command a second for 200 waiters of one process', most=1.0),
    Target('W6p', 'leasehold', 'sent_s', 'at most 40 commands a second for 200 processes', most=40.0),
]
