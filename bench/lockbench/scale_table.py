"""The tables of `scale`."""
from .table import machine_line, number, of_targets, page, records


def read(path):
    machine, figures = {}, {}
    for record in records(path):
        machine = record.get('machine', machine)
        if 'metric' in record:
            figures.setdefault(record['part'], {})[record['metric']] = record['value']
    return machine, figures


def listed(figures, *wanted):
    """One row for each measured figure."""
    rows = [[text, number(figures[name])] for name, text in wanted if name in figures]
    return [['', 'measured'], *rows]


def renewal(figures):
    own = figures['renewal']
    both = [['', 'idle', 'while renewing']]
    for name, text in (('pair_p50_us', 'acquire + release of an unrelated lock, p50 us'), ('pair_p99_us', 'the same, p99 us'),
                       ('cpu_percent_of_a_core', 'CPU of the client, % of a core (the probe included)')):
        both.append([text, number(own.get(f'idle.{name}')), number(own.get(f'renewing.{name}'))])
    yield 'Renewal: leases held by one client', listed(
        own, ('leases', 'leases'), ('client_cpu_us_renewal', 'CPU of the client for a renewal, us (renewing less idle)'),
        ('ttls_passed', 'TTLs that passed'), ('lost', 'lost'), ('doubtful', 'doubtful at the end'),
        ('shortest_left_s', 'shortest time left at the end, s'), ('redis_calls_s', 'commands a second, with those of scripts'),
        ('renewals_s_expected', 'renewals a second at a third of the TTL'), ('acquire_all_s', 'time to acquire all, s'))
    yield 'Renewal: what others notice', both


def memory(figures):
    yield 'Memory', listed(
        figures['memory'], ('redis_bytes_per_held_lock', 'bytes in Redis per held lock'),
        ('redis_bytes_per_held_lock_once_renewed', 'the same once renewed, with its place in the index'),
        ('redis_bytes_per_used_name', 'bytes in Redis per used name, once free'), ('redis_keys_per_used_name', 'keys in Redis per used name'),
        ('index_entries_per_used_name', 'entries left in the index per used name'),
        ('client_bytes_per_held_lease', 'bytes in the client per held lease'),
        ('client_bytes_per_held_lease_once_renewed', 'the same once renewed'), ('client_bytes_per_reader', 'bytes in the client per reader of one lock'), ('client_bytes_per_reader_once_renewed', 'the same once renewed'),
        ('client_bytes_per_permit', 'bytes in the client per permit'), ('client_bytes_per_permit_once_renewed', 'the same once renewed'),
        ('redis_bytes_per_permit', 'bytes in Redis per permit'), ('redis_bytes_per_permit_once_renewed', 'the same once renewed'),
        ('client_bytes_per_waiter', 'bytes in the client per waiter, its task included'),
        ('redis_bytes_for_all_waiters', 'bytes in Redis for all these waiters'), ('waiters_served', 'waiters served'),
        ('waiters_served_s', 'time to serve them all, s'))


def cycles(figures):
    rows = [['', 'cycles', 'cycles/s', 'client RSS first', 'last', 'growth', 'Redis first', 'last', 'growth']]
    for how, text in (('linger', 'lingering'), ('drop', 'dropped')):
        own = figures.get(f'memory.cycles.{how}')
        if own:
            rss, redis = ([(int(name.rsplit('.', 1)[1]), value) for name, value in own.items() if name.startswith(what)]
                          for what in ('client_rss_bytes', 'redis_used_bytes'))
            rows.append([text, *map(number, (rss[-1][0], own.get('cycles_s'), rss[0][1], rss[-1][1], own.get('client_growth_bytes'),
                                             redis[0][1], redis[-1][1], own.get('redis_growth_bytes')))])
    yield 'Memory over many cycles, in bytes: first = after a tenth of them', rows


def decades(figures, prefix, columns):
    found = sorted(int(part.removeprefix(prefix)) for part in figures if part.startswith(prefix))
    yield ['', *(text for _, text in columns)]
    for count in found:
        yield [f'{count:,}', *(number(figures[f'{prefix}{count}'].get(name)) for name, _ in columns)]


def curve(figures):
    columns = [('gap_p50_us', 'gap p50 us'), ('gap_p99_us', 'gap p99 us'), ('handoffs_s', 'hand-overs/s'), ('sent_handoff', 'commands/hand-over'),
               ('wait_max_over_mean', 'wait max/mean'), ('fewest_turns', 'fewest turns'), ('most_turns', 'most turns'), ('violations', 'violations')]
    yield 'Clients that wait for one lock (each its own connection, one process, empty critical section)', list(decades(figures, 'curve.', columns))


def phase(figures):
    yield 'A writer before many readers, a client each', listed(
        figures['phase'], ('readers', 'readers'), ('release_ms', 'its release, ms in the server'), ('longest_script_ms', 'longest command from then on, ms'), ('all_read_after_s', 'until the last of them reads, s'))


def names(figures):
    columns = [('pair_p50_us', 'p50 us'), ('pair_p99_us', 'p99 us'), ('ops_s', 'cycles/s')]
    yield 'Acquire + release, by how many names are in use', list(decades(figures, 'names.', columns))


def crash(figures):
    rows = [['', 'median ms', 'least', 'most', 'runs']]
    for part, text in (('crash.holder', "holder killed: from the end of its TTL to the waiter's start"),
                       ('crash.holder.quorum', 'the same on five servers'),
                       ('crash.waiter.none_dead', "release to the waiter's start, nobody killed"),
                       ('crash.waiter.first_dead', 'the same when the waiter before it was killed')):
        if part in figures:
            rows.append([text, *(number(figures[part].get(name)) for name in ('median_ms', 'least_ms', 'most_ms', 'runs'))])
    yield 'Crashes (TTL 1 s for the holder, 30 s for the waiters)', rows


def failover(figures):
    rows = [["from the new primary's first answer", 'median ms', 'least', 'most', 'runs']]
    for part, kind in (('failover.cluster', 'cluster'), ('failover.sentinel', 'sentinels')):
        for name, text in (('named', 'a majority of the sentinels names it'), ('confirmed', 'the last of 1,000 leases is confirmed'),
                           ('first', 'the first of 50 waiters is served'), ('last', 'the last of them')):
            own = figures.get(f'{part}.{name}')
            if own:
                rows.append([f'{kind}: {text}', *(number(own.get(figure)) for figure in ('median_ms', 'least_ms', 'most_ms', 'runs'))])
    yield 'Failovers: the primary is killed, and its replica takes over (TTL 30 s)', rows


SECTIONS = [('renewal', renewal), ('memory', memory), ('memory.cycles.', cycles), ('curve.', curve), ('phase', phase), ('names.', names), ('crash.', crash), ('failover.', failover)]


def render(path, as_markdown):
    machine, figures = read(path)
    chosen = [section for prefix, section in SECTIONS
              if prefix in figures or prefix.endswith('.') and any(part.startswith(prefix) for part in figures)]
    repetition = {('leasehold', part): own for part, own in figures.items()}
    sections = [*of_targets([repetition], [repetition]), *(table for section in chosen for table in section(figures))]
    return page([machine_line(machine)] if machine else [], sections, as_markdown)
