//! The address of a Redis server and the login, or those of a [`quorum`]; [`url`] reads them from a URL. User and password are never
//! shown.

pub(super) mod quorum;
mod url;

use std::fmt;
use std::io;
#[cfg(target_os = "linux")]
use std::time::Duration;

use leasehold_core::Invalid;
use redis::io::tcp::TcpSettings;
use redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use tokio::net::TcpStream;

use crate::access::{Access, Source};
#[cfg(feature = "tls")]
use crate::tls::Tls;

/// How long sent bytes may stay unacknowledged before the kernel gives the connection up.
#[cfg(target_os = "linux")]
const UNCONFIRMED: Duration = Duration::from_secs(10);

/// A parsed URL.
pub(crate) struct Address {
    info: ConnectionInfo,
    shown: String,
    access: Access,
    /// Those of the URL.
    #[cfg(feature = "tls")]
    tls: Tls,
}

impl Address {
    /// Reads the URL of a server. Errors quote only the scheme: the rest may contain a secret.
    pub(crate) fn parse(url: &str) -> Result<Self, Invalid> {
        let scheme = url.split(':').next().unwrap_or_default();
        let refuse = |why| Invalid::new("store URL", &format!("{scheme}:..."), why);
        url::parse(url).and_then(Self::new).map_err(refuse)
    }

    fn new(parsed: url::Parsed) -> Result<Self, String> {
        let info = (parsed.addr.into_connection_info())
            .map_err(|_| "has an address that cannot be used".to_owned())?;
        let settings = parsed
            .settings
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
        let tcp = TcpSettings::default().set_nodelay(true);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(UNCONFIRMED);
        Ok(Self {
            info: info.set_redis_settings(settings).set_tcp_settings(tcp),
            shown: parsed.shown,
            access: Access::default(),
            #[cfg(feature = "tls")]
            tls: parsed.tls,
        })
    }

    /// Adds credentials and TLS settings.
    pub(crate) fn with(self, access: Access) -> Result<Self, Invalid> {
        let settings = self.info.redis_settings();
        let has_its_own = settings.username().is_some() || settings.password().is_some();
        if matches!(access.credentials, Some(Source::Credentials(_))) && has_its_own {
            let why = "has a user or a password, and credentials were given besides: leave one of them out";
            return Err(Invalid::new("store URL", &self.shown, why));
        }
        #[cfg(feature = "tls")]
        {
            let refuse = |why| Err(Invalid::new("store URL", &self.shown, why));
            if access.tls.is_some() && !self.is_private() {
                return refuse(
                    "is not encrypted, and TLS settings were given besides: write rediss:// or leave them out",
                );
            }
            if access.tls.is_some() && !self.tls.is_default() {
                return refuse(
                    "has TLS options, and TLS settings were given besides: leave one of them out",
                );
            }
        }
        let this = Self { access, ..self };
        #[cfg(feature = "tls")]
        this.tls().check()?;
        Ok(this)
    }

    /// The source of credentials outside the URL.
    pub(super) fn source(&self) -> Option<&Source> {
        self.access.credentials.as_ref()
    }

    /// The TLS settings of the client, or else of the URL.
    #[cfg(feature = "tls")]
    pub(super) fn tls(&self) -> &Tls {
        self.access.tls.as_ref().unwrap_or(&self.tls)
    }

    /// True if the client logs in with a password.
    #[cfg(feature = "doctor")]
    pub(super) fn has_password(&self) -> bool {
        let is_asked_for = matches!(self.access.credentials, Some(Source::Credentials(_)));
        is_asked_for || self.info.redis_settings().password().is_some()
    }

    /// True if a URL of this scheme can name a server.
    pub(crate) fn has_scheme(scheme: &str) -> bool {
        url::knows(scheme)
    }

    /// The connection data of redis-rs.
    pub(super) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Sets the options of a stream that redis-rs would set on its own streams.
    pub(super) fn tune(stream: &TcpStream) -> io::Result<()> {
        // A client sends little and waits for the reply: a request must not wait for a full packet.
        stream.set_nodelay(true)?;
        #[cfg(target_os = "linux")]
        socket2::SockRef::from(stream).set_tcp_user_timeout(Some(UNCONFIRMED))?;
        Ok(())
    }

    /// True if the connection is encrypted or does not leave this host's kernel.
    #[cfg(any(feature = "doctor", feature = "tls"))]
    pub(super) fn is_private(&self) -> bool {
        matches!(
            self.info.addr(),
            redis::ConnectionAddr::TcpTls { .. } | redis::ConnectionAddr::Unix(_)
        )
    }
}

/// Scheme, host, port and database: safe for errors and logs.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_no_secret() {
        for (url, shown) in [
            ("redis://user:S3CR3T@host:7000/3", "redis://host:7000/3"),
            ("rediss://:S3CR3T@host", "rediss://host:6379"),
            ("unix:/tmp/r.sock?db=2&pass=S3CR3T", "unix:/tmp/r.sock/2"),
        ] {
            assert_eq!(
                Address::parse(url).map(|address| address.to_string()),
                Ok(shown.to_owned())
            );
        }
    }

    #[test]
    fn refuses_without_showing_a_secret() {
        for url in [
            "redis://user:S3CR3T@host:99999/",
            "redis://:S3CR3T@",
            "redis://:S3CR3T@host/x",
            "rediss://:S3CR3T@host/#S3CR3T",
        ] {
            let refused = Address::parse(url)
                .map(|address| address.to_string())
                .unwrap_err()
                .to_string();
            assert!(
                !refused.contains("S3CR3T") && refused.contains("host[:port]"),
                "{refused}"
            );
        }
    }
}
