"""A program that takes locks over HTTP as a story says: one order per line of stdin, one answer per line of stdout.

`README.md` has both. It uses Python's standard library only, as a client in any language can. LEASEHOLD_SOCKET is that of a `leasehold serve`,
LEASEHOLD_TOKEN its token.
"""

import http.client
import json
import os
import platform
import resource
import socket
import sys
import threading
import time

LONGEST_WAIT = 3_600_000
ANSWERS = threading.Lock()
KINDS = {"invalid": "refused", "store": "unavailable", "not_found": "lost"}


class Connection(http.client.HTTPConnection):
    """A connection to the socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["LEASEHOLD_SOCKET"])

    def send_request(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {os.environ['LEASEHOLD_TOKEN']}", "Content-Type": "application/json"}
        self.request(method, path, None if body is None else json.dumps(body), headers)

    def ask(self, method, path, body=None):
        """The status and the document of the answer."""
        self.send_request(method, path, body)
        response = self.getresponse()
        return response.status, json.load(response)


def ask(method, path, body=None):
    connection = Connection("localhost")
    try:
        return connection.ask(method, path, body)
    finally:
        connection.close()


def kind(document):
    """The error of a document, in the words of the stories."""
    return KINDS.get(document["error"], document["error"])


def answer(name, result, **more):
    # Threads answer beside each other. `print` would write the end of the line by itself.
    with ANSWERS:
        sys.stdout.write(json.dumps({"as": name, "is": result, **more}) + "\n")
        sys.stdout.flush()


class Session:
    """A session with its stream of events. It lives by the stream, or by beats."""

    def __init__(self, beat=None):
        self.lock = threading.Lock()
        # Leases by their names, and those that were told to be lost.
        self.leases, self.lost, self.is_over = {}, set(), False
        # The names whose renewals are told.
        self.watched = set()
        status, document = ask("POST", "/v1/sessions", {"ttl_ms": beat} if beat else {})
        assert status == 201, document
        self.id = document["session"]
        self.stream = Connection("localhost")
        self.stream.send_request("GET", f"/v1/sessions/{self.id}/events")
        self.events = self.stream.getresponse()
        assert self.events.status == 200, self.events.read()
        if beat:
            threading.Thread(target=self.beats, args=(beat / 3_000,), daemon=True).start()

    def listen(self):
        """Hears what happens to the leases. They are lost if the stream ends, since the gateway may have ended."""
        try:
            for line in self.events:
                if line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    if event["event"] == "lost":
                        self.loses(event["lease"])
                    elif event["event"] in ("doubtful", "renewed"):
                        self.tells(event["lease"], event["event"])
        except (OSError, http.client.HTTPException):
            pass
        self.ends()

    def beats(self, interval):
        while not self.is_over:
            time.sleep(interval)
            status, _ = ask("POST", f"/v1/sessions/{self.id}/beat", {})
            if status != 200:
                self.ends()

    def ends(self):
        with self.lock:
            self.is_over = True
            leases = list(self.leases.values())
        for lease in leases:
            self.loses(lease)

    def tells(self, lease, what):
        with self.lock:
            names = [name for name in self.watched if self.leases.get(name) == lease]
        for name in names:
            answer(name, what)

    def loses(self, lease):
        with self.lock:
            names = [name for name, known in self.leases.items() if known == lease and lease not in self.lost]
            self.lost.add(lease)
            for name in names:
                answer(name, "lost")

    def has(self, name, document):
        with self.lock:
            lease = self.leases[name] = document["lease"]
            answer(name, "held", fence=document["fence"], slot=document["slot"])
            if lease in self.lost:
                answer(name, "lost")


class Actor:
    def __init__(self):
        self.session, self.requests, self.crowd = None, {}, []

    def obey(self, verb, name, **order):
        if verb == "acquire":
            self.acquire(name, **order)
        elif verb == "cancel":
            self.requests[name].sock.shutdown(socket.SHUT_RDWR)
        elif verb == "release":
            status, document = ask("DELETE", f"/v1/leases/{self.session.leases.pop(name)}")
            answer(name, kind(document) if status != 200 else "released" if document["confirmed"] else "unconfirmed")
        elif verb == "check":
            status, document = ask("POST", f"/v1/leases/{self.session.leases[name]}/check", {})
            answer(name, kind(document) if status != 200 else "valid")
        elif verb == "watch":
            with self.session.lock:
                self.session.watched.add(name)
        elif verb == "crowd":
            self.take_many(name, **order)
        else:
            answer(name, "cannot")

    def acquire(self, name, lock, ttl, wait=LONGEST_WAIT, mode="", slots=0, also=(), beat=None):
        if not self.session or self.session.is_over:
            self.session = Session(beat)
            threading.Thread(target=self.session.listen, daemon=True).start()
        note = f"{os.getpid()} {name}"
        mode = f"slot/{slots}" if slots else "shared" if mode == "read" else "exclusive"
        asked = {"session": self.session.id, "lock": lock, "also": also, "ttl_ms": ttl, "wait_ms": wait, "mode": mode, "note": note}
        connection = self.requests[name] = Connection("localhost")
        connection.send_request("POST", "/v1/leases", asked)
        threading.Thread(target=self.follow, args=(name, connection, self.session), daemon=True).start()
        if wait:
            threading.Thread(target=self.look, args=(name, note, [lock, *also]), daemon=True).start()

    def follow(self, name, connection, session):
        try:
            response = connection.getresponse()
            status, document = response.status, json.load(response)
        except (OSError, http.client.HTTPException):
            answer(name, "cancelled")
            return
        finally:
            self.requests.pop(name, None)
        if status == 201:
            session.has(name, document)
        else:
            answer(name, kind(document))

    def look(self, name, note, locks):
        """Tells once that the request waits: it is in the queue of a lock, as any client can see."""
        while name in self.requests:
            for lock in locks:
                status, document = ask("GET", f"/v1/locks/{lock}")
                if status == 200 and any(waiter["note"] == note for waiter in document["locks"][0]["queue"]):
                    answer(name, "waiting")
                    return
            time.sleep(0.02)

    def take_many(self, name, lock, ttl, times):
        """Takes `lock:0`, `lock:1` and so on, each in a session of its own that lives by its stream."""
        resource.setrlimit(resource.RLIMIT_NOFILE, [resource.getrlimit(resource.RLIMIT_NOFILE)[1]] * 2)
        short = Connection("localhost")
        for number in range(times):
            session = Session()
            self.crowd.append(session)
            asked = {"session": session.id, "lock": f"{lock}:{number}", "ttl_ms": ttl}
            status, document = short.ask("POST", "/v1/leases", asked)
            assert status == 201, document
        answer(name, "held", fence=document["fence"])


actor = Actor()
print("ready", platform.python_version(), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    actor.obey(order.pop("do"), order.pop("as"), **order)
if actor.session and not actor.session.is_over:
    ask("DELETE", f"/v1/sessions/{actor.session.id}")
# Threads may be about to print.
os._exit(0)
