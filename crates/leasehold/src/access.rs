//! A client's access to a server: user, password and encryption, and the way to it. No output shows a password.

use std::error;
use std::fmt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// A user and a password of a server.
///
/// ```
/// use leasehold::Credentials;
///
/// let credentials = Credentials::password("secret").user("app");
/// assert!(!format!("{credentials:?}").contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl Credentials {
    /// The password of the server's default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: password.into(),
        }
    }

    /// The password of this user.
    #[must_use]
    pub fn user(self, user: impl Into<String>) -> Self {
        let user = Some(user.into());
        Self { user, ..self }
    }
}

/// Without the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

type CredentialsFuture = BoxFuture<'static, Result<Credentials, String>>;

/// A source of credentials. The client asks it at each dial.
#[derive(Clone)]
pub(crate) enum Source {
    /// The credentials of all servers.
    Credentials(Arc<dyn Fn() -> CredentialsFuture + Send + Sync>),
    /// The URLs of the servers, with their credentials.
    Urls(Arc<dyn Fn() -> Vec<String> + Send + Sync>),
}

impl Source {
    pub(crate) fn new<F, E>(ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let ask = Arc::new(ask);
        Self::Credentials(Arc::new(move || {
            let ask = ask.clone();
            let answer = async move { ask().await.map_err(|error| error.into().to_string()) };
            // A panic must not end the dialing task. The source is asked again.
            let answer = AssertUnwindSafe(answer).catch_unwind();
            answer
                .map(|answer| answer.unwrap_or_else(|_| Err("their source panicked".into())))
                .boxed()
        }))
    }
}

/// A stream that carries bytes both ways.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

type DialFuture = BoxFuture<'static, io::Result<Box<dyn Duplex>>>;

/// A function of the program that makes the stream to a host and a port. The client calls it at each dial.
#[derive(Clone)]
pub(crate) struct Dialer(Arc<dyn Fn(String, u16) -> DialFuture + Send + Sync>);

impl Dialer {
    pub(crate) fn new<F, S>(dial: impl Fn(String, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let dial = Arc::new(dial);
        Self(Arc::new(move |host, port| {
            let dial = dial.clone();
            let made = async move {
                let stream = dial(host, port).await?;
                Ok(Box::new(stream) as Box<dyn Duplex>)
            };
            // A panic must not end the dialing task. The function is called again.
            let made = AssertUnwindSafe(made).catch_unwind();
            made.map(|made| made.unwrap_or_else(|_| Err(io::Error::other("it panicked"))))
                .boxed()
        }))
    }

    pub(crate) async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Duplex>> {
        (self.0)(host.to_owned(), port).await
    }
}

/// Settings of connections, apart from the address.
#[derive(Clone, Default)]
pub(crate) struct Access {
    /// Makes the streams, if the client does not.
    pub(crate) dialer: Option<Dialer>,
    /// Asked at each dial.
    pub(crate) credentials: Option<Source>,
    /// For encrypted connections.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::tls::Tls>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("credentials", &self.credentials.is_some())
            .field("dialer", &self.dialer.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let credentials = Credentials::password("S3CR3T").user("app");
        let source = Source::new({
            let credentials = credentials.clone();
            move || std::future::ready(Ok::<_, String>(credentials.clone()))
        });
        let access = Access {
            credentials: Some(source),
            ..Access::default()
        };
        let shown = format!("{credentials:?} {access:?}");
        assert!(
            shown.contains("app") && !shown.contains("S3CR3T"),
            "{shown}"
        );
    }
}
