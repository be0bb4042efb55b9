"""A private redis-server on a free port, and its statistics."""
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def end(process):
    """Asks a server to end, and kills it after 5 s."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Connection:
    """A minimal Redis client for INFO, CONFIG and PTTL."""

    def __init__(self, port):
        self.socket = socket.create_connection(('127.0.0.1', port))
        self.file = self.socket.makefile('rb')

    def send(self, *words):
        words = [str(word).encode() for word in words]
        self.socket.sendall(b'*%d\r\n' % len(words) + b''.join(b'$%d\r\n%s\r\n' % (len(w), w) for w in words))

    def __call__(self, *words):
        self.send(*words)
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError('redis-server closed the connection')
        kind, rest = line[:1], line[1:-2]
        if kind == b'+':
            return rest.decode()
        if kind == b'-':
            raise RuntimeError(rest.decode())
        if kind == b':':
            return int(rest)
        if kind == b'$':
            return None if rest == b'-1' else self.file.read(int(rest) + 2)[:-2].decode()
        return [self.reply() for _ in range(int(rest))]

    def info(self, section):
        lines = (line.split(':', 1) for line in self('INFO', section).splitlines() if ':' in line)
        return dict(lines)

    def calls(self):
        """The number of calls of each command, those by scripts included."""
        stats = self.info('commandstats')
        return {name.removeprefix('cmdstat_'): int(re.match(r'calls=(\d+)', value)[1]) for name, value in stats.items()}

    def close(self):
        self.file.close()
        self.socket.close()


class NotStarted(SystemExit):
    """The reason why a server does not start. It ends the program unless the caller catches it."""


class Server:
    """A server without persistence, from a program like redis-server. `close` ends it and removes its folder."""

    env = {}  # environment variables for drivers
    config = []  # its configuration file, if it has one

    def __init__(self, program='redis-server'):
        self.program = program
        self.folder = tempfile.mkdtemp(prefix='leasehold-bench-')
        self.process = None
        try:
            self._prepare()
            self._start()
        except BaseException:
            self.close()
            raise

    def _prepare(self):
        """Creates the files that the server needs in its folder."""

    def _options(self):
        """The arguments of one attempt to start."""
        return ['--appendonly', 'no']

    def arguments(self):
        """The driver arguments that name this server."""
        return [f'port={self.port}']

    def _start(self):
        for _ in range(5):  # another program may take the port first
            self.port = free_port()
            with open(os.path.join(self.folder, 'log'), 'w') as log:
                self.process = subprocess.Popen(
                    [self.program, *self.config, '--port', str(self.port), '--bind', '127.0.0.1', '--save', '', *self._options(),
                     '--dir', self.folder], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and self.process.poll() is None:
                try:
                    self.command = Connection(self.port)
                    if int(self.command.info('server')['process_id']) == self.process.pid:
                        return
                    break
                except OSError:
                    time.sleep(0.02)
            self._end()
        with open(os.path.join(self.folder, 'log')) as log:
            raise NotStarted(f'{self.program} does not start:\n' + log.read()[-2000:])

    @property
    def pid(self):
        return self.process.pid

    @property
    def pids(self):
        return [self.pid]

    def empty(self):
        """Before a run."""
        self.command('FLUSHALL')

    def begin(self):
        """The drivers are warm."""

    def end(self):
        """The drivers have reported."""

    def _end(self):
        if self.process:
            end(self.process)

    def close(self):
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Monitor:
    """Counts commands by name, separately for clients and scripts (commandstats adds both)."""

    LINE = re.compile(rb'\+[\d.]+ \[\d+ ([^\]]*)\] "([^"]*)"')

    def __init__(self, port):
        self.sent, self.inner = {}, {}
        self.connection = Connection(port)
        self.connection('MONITOR')
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        try:
            for line in self.connection.file:
                found = self.LINE.match(line)
                if found:
                    counts = self.inner if found[1] == b'lua' else self.sent
                    name = found[2].decode().lower()
                    counts[name] = counts.get(name, 0) + 1
        except (OSError, ValueError):
            pass  # closed by `close`

    def close(self):
        self.connection.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.connection.close()
