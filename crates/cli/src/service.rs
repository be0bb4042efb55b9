//! Messages to the service manager, by the protocol of systemd's `sd_notify`: `NOTIFY_SOCKET` names a datagram socket.

use std::env;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread;

/// The variable with the socket: a path, or `@` and an abstract name.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";

/// Begins the message without which the start of a service never ends.
const READY: &str = "READY=1";

/// Tells the service manager, if there is one. Each line is `VARIABLE=VALUE`. The manager must not keep this process from its lease, so a
/// message that it does not take at once is lost. Only that the service is ready waits for it, on a thread of its own.
pub(crate) fn tell(lines: &str) {
    let Some(socket) = env::var_os(SOCKET).filter(|socket| !socket.is_empty()) else {
        return;
    };
    let _sent: io::Result<usize> = (|| {
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        sender.connect_addr(&address(socket.as_encoded_bytes())?)?;
        let sent = sender.send(lines.as_bytes());
        if matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            && lines.starts_with(READY)
        {
            sender.set_nonblocking(false)?;
            let lines = lines.to_owned();
            let again = move || sender.send(lines.as_bytes());
            thread::Builder::new().name("ready".into()).spawn(again)?;
        }
        sent
    })();
}

fn address(socket: &[u8]) -> io::Result<SocketAddr> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[cfg(target_os = "linux")]
    if let [b'@', name @ ..] = socket {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(OsStr::from_bytes(socket))
}
