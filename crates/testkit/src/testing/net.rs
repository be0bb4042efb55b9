//! Free local TCP ports for servers and proxies, outside the range that the kernel uses for
//! outgoing connections.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use socket2::{Domain, Socket, Type};

// Below the outgoing (ephemeral) ranges of Linux (from 32768) and macOS (from 49152). Inside
// that range, a client that keeps reconnecting to a dead server's port sooner or later gets the
// same number as its own source port and is connected to itself; and any outgoing connection
// can take a stopped server's port before it is restarted.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// The distance from the port of a node of a cluster to that of its bus, in all versions of Redis and Valkey.
const BUS: u16 = 10_000;

/// A TCP port of 127.0.0.1 that no other test takes while this lives. A connection to it is refused until a server of this test listens there,
/// and again when that server is gone.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
    /// Bound, and not listening. Where a server could not bind the port beside them, there are none.
    _held: Vec<Socket>,
}

impl ReservedPort {
    /// Reserves a free port.
    #[expect(clippy::new_without_default, reason = "it asks the system")]
    pub fn new() -> Self {
        let (socket, number) = bound();
        Self::of(number, [socket])
    }

    /// Reserves a free port for a node of a cluster, together with the port of its bus.
    pub(crate) fn with_bus() -> Self {
        loop {
            let (socket, number) = bound();
            // Both are in the range.
            let (number, other) = match number.checked_sub(BUS) {
                Some(lower) if lower >= FIRST => (lower, lower),
                _ => (number, number + BUS),
            };
            if let Some(other) = bind(other) {
                return Self::of(number, [socket, other]);
            }
        }
    }

    fn of(number: u16, sockets: impl IntoIterator<Item = Socket>) -> Self {
        // Linux lets a second socket bind the port if both have this option and the first one does not listen. Tests bind without it.
        let held =
            |socket: &Socket| cfg!(target_os = "linux") && socket.set_reuse_address(true).is_ok();
        Self {
            number,
            _held: sockets.into_iter().filter(held).collect(),
        }
    }

    /// The number of the port.
    pub const fn number(&self) -> u16 {
        self.number
    }
}

/// A TCP port on 127.0.0.1 without a listener at the moment, for a program that this kit does not start.
///
/// The same port is not returned twice in a process (until some 20 000 have been), but another
/// process may take it before the caller does: be ready to try another.
pub fn free_port() -> u16 {
    bound().1
}

/// Listens on a free port of 127.0.0.1.
pub(crate) fn listen() -> TcpListener {
    let (socket, _) = bound();
    socket.listen(BACKLOG).expect("listen on a free port");
    socket.into()
}

/// As many as std has.
const BACKLOG: i32 = 128;

/// A socket that is bound to a free port, and the number of that port.
fn bound() -> (Socket, u16) {
    static START: OnceLock<u16> = OnceLock::new();
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test processes run in parallel: each begins at a different place of the range.
    let start = *START.get_or_init(|| {
        let random = RandomState::new().hash_one(std::process::id());
        u16::try_from(random % u64::from(COUNT)).expect("smaller than COUNT")
    });
    for _ in 0..COUNT {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let offset = (u32::from(start) + step) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset).expect("smaller than COUNT");
        if let Some(socket) = bind(port) {
            return (socket, port);
        }
    }
    panic!(
        "no free port on 127.0.0.1 from {FIRST} to {}",
        FIRST + COUNT
    );
}

/// A socket that is bound to this port, if the port is free.
fn bind(port: u16) -> Option<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // Not with SO_REUSEADDR, as std does: that would take a port that is reserved.
    socket.bind(&address.into()).ok().map(|()| socket)
}

pub(crate) fn local_port(listener: &TcpListener) -> u16 {
    listener
        .local_addr()
        .expect("a bound socket has an address")
        .port()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::net::TcpStream;

    #[test]
    fn ports_are_free_distinct_and_not_ephemeral() {
        let ports: Vec<u16> = (0..50).map(|_| free_port()).collect();
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 50);
        assert!(ports.iter().all(|port| (FIRST..32_768).contains(port)));
        TcpListener::bind((Ipv4Addr::LOCALHOST, ports[49])).expect("the port is free");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_port_of_a_bus_is_reserved_with_that_of_its_node() {
        let ports: Vec<ReservedPort> = (0..50).map(|_| ReservedPort::with_bus()).collect();
        for port in ports.iter().map(ReservedPort::number) {
            assert!((FIRST..FIRST + BUS).contains(&port));
            assert!(bind(port).is_none() && bind(port + BUS).is_none());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_reserved_port_is_for_its_own_server_alone() {
        let port = ReservedPort::new();
        let address = (Ipv4Addr::LOCALHOST, port.number());
        let is_refused = || {
            let error = TcpStream::connect(address).expect_err("nobody listens");
            error.kind() == std::io::ErrorKind::ConnectionRefused
        };
        let other = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            socket.bind(&SocketAddr::from(address).into())
        };
        assert!(is_refused());
        other().expect_err("it is reserved");
        // A server binds with SO_REUSEADDR, as std does.
        let server = TcpListener::bind(address).expect("its own server");
        TcpStream::connect(address).expect("it listens");
        other().expect_err("a server has it");
        drop(server);
        assert!(is_refused());
        other().expect_err("it is still reserved");
    }
}
