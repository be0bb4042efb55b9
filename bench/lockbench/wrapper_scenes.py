"""The scenes of the wrapper comparison: faults, exit statuses, surviving commands, overlaps of two holders."""
import os
import signal
import shutil
import subprocess
import tempfile
import time

from lockbench.wrapper_tools import TTL

LIMIT = 20.0    # s until a step counts as hung
FREEZE = 6.0    # s for which a server is frozen: three TTLs
WATCH = 50.0    # s to watch a command after a fault: longer than any tool needs to free a lock
MOST = 90       # s until a command ends by itself


def now():
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def until(condition, limit):
    end = now() + limit
    while not condition():
        if now() > end:
            return False
        time.sleep(0.005)
    return True


def span(seconds):
    return f'{seconds * 1000:.0f} ms' if seconds < 1 else f'{seconds:.1f} s'


class Beat:
    """A command that logs its running time."""

    def __init__(self, stage, name):
        self.path = os.path.join(stage.folder, name)
        self.words = [stage.child, 'beat', self.path, str(MOST)]

    def times(self):
        try:
            with open(self.path) as file:
                lines = file.read().split('\n')[:-1]
            return [int(line) / 1e9 for line in lines]
        except FileNotFoundError:
            return []

    def began(self):
        times = self.times()
        return times[0] if times else None

    def last(self):
        return self.times()[-1]

    def runs(self):
        times = self.times()
        return bool(times) and now() - times[-1] < 0.25

    def stop(self):
        with open(self.path + '.stop', 'w'):
            pass


class Stage:
    """One scene with one tool: a separate folder, lock and set of processes."""

    def __init__(self, tool, child, scene):
        self.tool, self.child = tool, child
        self.folder = tempfile.mkdtemp(prefix='leasehold-wrappers-')
        self.lock = f'{scene}-{os.path.basename(self.folder)}'
        self.started, self.beats = [], []

    def beat(self, name):
        beat = Beat(self, name)
        self.beats.append(beat)
        return beat

    def script(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, 'w') as file:
            file.write('#!/bin/sh\n' + text + '\n')
        os.chmod(path, 0o755)
        return [path]

    def start(self, command, stdin=subprocess.DEVNULL):
        process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
                                   env={**os.environ, **(self.tool.env or {})})
        self.started.append(process)
        return process

    def take(self, words, **how):
        command = self.tool.command(self.lock, words, **how)
        return command and self.start(command)

    def hold(self, name='first', words=None):
        """Starts a holder and waits until its command runs."""
        beat = self.beat(name)
        process = self.take(words(beat) if words else beat.words)
        if not until(beat.began, LIMIT):
            raise RuntimeError('its first command never began')
        return process, beat

    def end(self, process, limit=LIMIT):
        """The exit status, and the time until the exit."""
        begun = now()
        if not until(lambda: process.poll() is not None, limit):
            return None
        return process.returncode, now() - begun

    def close(self):
        for beat in self.beats:
            beat.stop()
        until(lambda: all(process.poll() is not None for process in self.started), 3)
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        until(lambda: not any(beat.runs() for beat in self.beats), 2)
        shutil.rmtree(self.folder, ignore_errors=True)


def code(end):
    if end is None:
        return f'hung for {LIMIT:.0f} s'
    status = end[0]
    return f'exit **{status}**' if status >= 0 else f'died of {signal.Signals(-status).name}'


def waited(end):
    return code(end) + (f' after {span(end[1])}' if end else '')


def busy(stage, **how):
    first, beat = stage.hold()
    second = stage.take([stage.child, 'clock'], **how)
    if second is None:
        return 'cannot be asked for'
    cell = waited(stage.end(second))
    beat.stop()
    return cell


def try_once(stage):
    return busy(stage, once=True)


def wait_limit(stage):
    return busy(stage, wait=1)


def exits_7(stage):
    return code(stage.end(stage.take(stage.script('seven', 'exit 7'))))


def killed(stage):
    return code(stage.end(stage.take(stage.script('dies', 'kill -KILL $$'))))


def not_found(stage):
    return code(stage.end(stage.take(['/nonexistent/command'])))


def unreachable(stage):
    process = stage.start(stage.tool.unreachable(stage.lock, [stage.child, 'clock']))
    end = stage.end(process)
    ran = end and process.stdout.read()
    return waited(end) + ('; **the command ran**' if ran else '')


def quoting(stage):
    process = stage.take(['printf', r'%s\n', 'a b'])
    end = stage.end(process)
    said = process.stdout.read().decode() if end else ''
    return 'as typed' if said == 'a b\n' else f'printed `{said.encode("unicode_escape").decode()}`'


def stdin(stage):
    process = stage.start(stage.tool.command(stage.lock, ['cat']), stdin=subprocess.PIPE)
    process.stdin.write(b'\0\xff' * 5000)
    try:
        process.stdin.close()
    except BrokenPipeError:
        pass
    if stage.end(process, 5) is None:
        return 'hung'
    got = process.stdout.read()
    return 'arrives, byte for byte' if got == b'\0\xff' * 5000 else f'**dropped** ({len(got)} of 10000 bytes)'


def fence(stage):
    process = stage.take(['env'])
    end = stage.end(process)
    said = process.stdout.read().decode(errors='replace').splitlines() if end else []
    names = sorted(line.split('=')[0] for line in said if any(word in line.split('=')[0] for word in ('FENCE', 'LOCK_REV')))
    return ', '.join(f'`{name}`' for name in names) or 'none'


def aftermath(stage, first, beat, at, unfreeze=None):
    """The fate of the first command after `at`, the view of a second client, and the exit of the first wrapper. A command that
    continues may run until the second client has the lock, or for `WATCH`."""
    if unfreeze:
        until(lambda: now() > at + FREEZE, FREEZE)
        unfreeze()
    second_beat = stage.beat('second')
    second = stage.take(second_beat.words)
    until(lambda: second_beat.began() or second.poll() is not None, at + WATCH - now())
    began = second_beat.began()
    # Long enough to see if the overlap is short.
    until(lambda: not beat.runs(), 3 * TTL)
    lived = beat.runs()
    beat.stop()
    until(lambda: not beat.runs(), 5)
    end, last = stage.end(first, 5), beat.last()
    fate = 'the command **runs on**' if lived else f'the command is dead after {span(max(0, last - at))}'
    if began is None and lived:
        others = f'the lock stays with it (watched for {span(last - at)})'
    elif began is None and second.poll() is not None:
        others = f'another one that asks: {code((second.poll(), 0))}'
    elif began is None:
        others = f'nobody else gets the lock for {WATCH:.0f} s'
    elif began < last:
        others = f'another one gets the lock after {span(began - at)}: **two at once** for {span(last - began)}{" and more" if lived else ""}'
    else:
        others = f'another one starts {span(began - last)} after its end'
    second_beat.stop()
    return f'{fate}; {others}', end


def lost(stage):
    first, beat = stage.hold()
    at = now()
    stage.tool.lose(stage.lock)
    cell, end = aftermath(stage, first, beat, at)
    return f'{cell}; {code(end)}'


def frozen(stage):
    server = stage.tool.server
    if server is None:
        return 'there is no server'
    first, beat = stage.hold()
    at = now()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        cell, end = aftermath(stage, first, beat, at, unfreeze=lambda: os.kill(server.pid, signal.SIGCONT))
    finally:
        os.kill(server.pid, signal.SIGCONT)
    return f'{cell}; {code(end)}'


def terminated(stage):
    first, beat = stage.hold()
    at = now()
    first.send_signal(signal.SIGTERM)
    cell, end = aftermath(stage, first, beat, at)
    return f'{cell}; {code(end)}'


def wrapper_killed(stage):
    """The command has a child; the scene watches the child."""
    def words(beat):
        return stage.script('parent', ' '.join(beat.words) + ' &\nwait')

    first, beat = stage.hold(words=words)
    at = now()
    first.kill()
    cell, _ = aftermath(stage, first, beat, at)
    return cell


ALL = [
    ('busy', 'busy, asked to try once', try_once),
    ('wait', 'busy, asked to wait for 1 s', wait_limit),
    ('seven', 'the command exits with 7', exits_7),
    ('killed', 'the command dies of SIGKILL', killed),
    ('missing', 'the command does not exist', not_found),
    ('unreachable', 'the store cannot be reached (flock: the file cannot be made)', unreachable),
    ('lost', 'the lock is lost while the command runs (its key is deleted, its session or lease ended, its file removed)', lost),
    ('frozen', f'the server is frozen for {FREEZE:.0f} s while the command runs', frozen),
    ('term', 'SIGTERM to the wrapper', terminated),
    ('kill', 'SIGKILL to the wrapper; watched is a grandchild', wrapper_killed),
    ('quoting', r"`printf '%s\n' 'a b'`", quoting),
    ('stdin', '10,000 bytes of binary input by a pipe', stdin),
    ('fence', 'a fencing token in the environment of the command', fence),
]
