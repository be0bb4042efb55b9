"""Several redis-servers: five as one quorum. For a `Runner` they are as one server."""
import os
import signal
import time

from .redis import Server


def mark(server):
    """Marks the server as one of a new quorum: <nodes> <longest TTL in ms> <made at, 0: new> <begin of its run_id>. Without this,
    Leasehold keeps out for a minute, since the server may have lost its data. The other peers do not read it."""
    run = server.command.info('server')['run_id']
    server.command('SET', 'leasehold:quorum', f'{Five.nodes} 60000 0 {run[:16]}')


class Several:
    """`silent`: the last server is stopped (SIGSTOP) once the drivers are warm, and goes on when they have reported."""

    env = {}
    silent = False
    kind = Server

    def __init__(self, program='redis-server'):
        self.servers, self.stopped = [], False
        try:
            for _ in range(self.nodes):
                self.servers.append(self.kind(program))
            self._form()
        except BaseException:
            self.close()
            raise

    @property
    def living(self):
        return self.servers[:-1] if self.silent else self.servers

    @property
    def pids(self):
        return [server.pid for server in self.living]

    @property
    def port(self):
        """The port of the server at which MONITOR counts."""
        return self.servers[0].port

    def _form(self):
        """Makes them one."""

    @property
    def command(self):
        return self

    def __call__(self, *words):
        """Sends a command to all servers. Returns the answer of the first."""
        return [server.command(*words) for server in self.servers][0]

    def empty(self):
        self('FLUSHALL')

    def calls(self):
        """The calls of each command, at all living servers together."""
        sums = {}
        for server in self.living:
            for name, count in server.command.calls().items():
                sums[name] = sums.get(name, 0) + count
        return sums

    def info(self, section):
        return self.servers[0].command.info(section)

    def begin(self):
        """The drivers are warm."""
        if self.silent:
            os.kill(self.servers[-1].pid, signal.SIGSTOP)
            self.stopped = True
            # A client that gives a silent server up has done so when the window begins.
            time.sleep(0.1)

    def end(self):
        """The drivers have reported."""
        if self.stopped:
            os.kill(self.servers[-1].pid, signal.SIGCONT)
            self.stopped = False

    def close(self):
        self.end()
        for server in self.servers:
            server.close()


class Five(Several):
    nodes = 5

    def arguments(self):
        return ['ports=' + ','.join(str(server.port) for server in self.servers)]

    def empty(self):
        super().empty()
        for server in self.servers:
            mark(server)


class FourOfFive(Five):
    silent = True
