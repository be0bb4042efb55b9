"""Servers of the variants: TLS, each write on the disk before its answer, a quorum, or a cluster."""
import os
import subprocess
import time

from .quorum import Five, FourOfFive, Several
from .redis import NotStarted, Server, free_port

# A private configuration, because the openssl.cnf of systems differ.
CONFIG = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = leasehold-bench
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = IP:127.0.0.1, DNS:localhost
"""
NEW_KEY = '-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config openssl.cnf'
STEPS = [
    f'req -x509 {NEW_KEY} -keyout ca.key -out ca.crt -days 30 -subj /CN=bench-ca -extensions ca',
    f'req -new {NEW_KEY} -keyout server.key -out server.csr -subj /CN=localhost',
    'x509 -req -in server.csr -CA ca.crt -CAkey ca.key -set_serial 2 -days 30 -extfile openssl.cnf -extensions leaf -out server.crt',
]


def make_certificates(folder):
    """A CA, and a certificate for 127.0.0.1 that it signed: ca.crt, server.crt and server.key."""
    with open(os.path.join(folder, 'openssl.cnf'), 'w') as config:
        config.write(CONFIG)
    for step in STEPS:
        try:
            done = subprocess.run(['openssl', *step.split()], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotStarted(f'the openssl command does not work: {error}') from None
        if done.returncode:
            raise NotStarted(f'openssl {step.split()[0]} failed: ' + ' | '.join(done.stderr.strip().splitlines()[-2:]))


class TlsServer(Server):
    """A server that drivers reach over TLS, and the harness on a plain port."""

    def _prepare(self):
        make_certificates(self.folder)
        self.env = {'SSL_CERT_FILE': os.path.join(self.folder, 'ca.crt')}

    def _options(self):
        self.tls_port = free_port()
        return [*super()._options(), '--tls-port', str(self.tls_port), '--tls-auth-clients', 'no', '--tls-ca-cert-file', 'ca.crt',
                '--tls-cert-file', 'server.crt', '--tls-key-file', 'server.key']

    def arguments(self):
        return [*super().arguments(), f'url=rediss://127.0.0.1:{self.tls_port}/']


class DiskServer(Server):
    """A server that answers a write once the disk has it."""

    def _prepare(self):
        kind = subprocess.run(['stat', '-f', '-c', '%T', self.folder], capture_output=True, text=True).stdout.strip()
        if kind in ('tmpfs', 'ramfs'):
            raise NotStarted('the temporary folder is in memory: name one on a disk in TMPDIR')

    def _options(self):
        # No rewrite of the file, since it would disturb some runs only.
        return ['--appendonly', 'yes', '--appendfsync', 'always', '--auto-aof-rewrite-percentage', '0']


class ClusterNode(Server):
    """A server in cluster mode. It has no slots yet."""

    def _options(self):
        self.bus = free_port()
        return [*super()._options(), '--cluster-enabled', 'yes', '--cluster-port', str(self.bus), '--cluster-node-timeout', '2000']


class Cluster(Several):
    """A cluster of so many primaries."""

    kind = ClusterNode

    def _form(self):
        first = self.servers[0]
        for at, node in enumerate(self.servers):
            node.command('CLUSTER', 'SET-CONFIG-EPOCH', at + 1)
            node.command('CLUSTER', 'ADDSLOTSRANGE', 16384 * at // self.nodes, 16384 * (at + 1) // self.nodes - 1)
            if node is not first:
                first.command('CLUSTER', 'MEET', '127.0.0.1', node.port, node.bus)
        deadline = time.monotonic() + 30
        for node in self.servers:
            while 'cluster_state:ok' not in (said := node.command('CLUSTER', 'INFO')) or f'cluster_size:{self.nodes}' not in said:
                if time.monotonic() > deadline:
                    raise NotStarted('the nodes form no cluster: ' + said)
                time.sleep(0.05)

    def arguments(self):
        return ['url=redis+cluster://' + ','.join(f'127.0.0.1:{server.port}' for server in self.servers)]


class OneNode(Cluster):
    nodes = 1


class ThreeNodes(Cluster):
    nodes = 3


BY_CONDITION = {'tls': TlsServer, 'disk': DiskServer, 'quorum': Five, 'silent': FourOfFive, 'node': OneNode, 'cluster': ThreeNodes}
