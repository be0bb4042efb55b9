//! Free local TCP ports for servers and proxies, outside the range that the kernel uses for
//! outgoing connections.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

// Below the outgoing (ephemeral) ranges of Linux (from 32768) and macOS (from 49152). Inside
// that range, a client that keeps reconnecting to a dead server's port sooner or later gets the
// same number as its own source port and is connected to itself; and any outgoing connection
// can take a stopped server's port before it is restarted.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A TCP port on 127.0.0.1 without a listener at the moment.
///
/// The same port is not returned twice in a process (until some 20 000 have been), but another
/// process may take it before the caller does: be ready to try another.
pub fn free_port() -> u16 {
    let listener = listen();
    local_port(&listener)
}

/// Listens on a free port of 127.0.0.1.
pub(crate) fn listen() -> TcpListener {
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
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener;
        }
    }
    panic!(
        "no free port on 127.0.0.1 from {FIRST} to {}",
        FIRST + COUNT
    );
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

    #[test]
    fn ports_are_free_distinct_and_not_ephemeral() {
        let ports: Vec<u16> = (0..50).map(|_| free_port()).collect();
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 50);
        assert!(ports.iter().all(|port| (FIRST..32_768).contains(port)));
        TcpListener::bind((Ipv4Addr::LOCALHOST, ports[49])).expect("the port is free");
    }
}
