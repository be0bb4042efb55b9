//! Encrypted connections. Must never choose the cryptography of the whole program: that is the program's own choice, which is
//! followed here if it has made one.

use std::sync::Arc;

use redis::{ErrorKind, RedisError, RedisResult};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Encrypts a connection to `host`, whose certificate has to be signed by an authority that this system trusts.
pub(super) async fn over<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    host: &str,
    insecure: bool,
) -> RedisResult<TlsStream<S>> {
    if insecure {
        return Err(settings(
            "certificates that nobody has signed are not accepted (#insecure)",
        ));
    }
    let name = ServerName::try_from(host.trim_matches(['[', ']']))?.to_owned();
    let connector = TlsConnector::from(Arc::new(config()?));
    Ok(connector.connect(name, stream).await?)
}

fn config() -> RedisResult<ClientConfig> {
    let provider = CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(ring::default_provider()));
    let mut found = rustls_native_certs::load_native_certs();
    if let Some(error) = found.errors.pop() {
        return Err(error.into());
    }
    let mut trusted = RootCertStore::empty();
    for certificate in found.certs {
        trusted.add(certificate).map_err(|error| refused(&error))?;
    }
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?;
    Ok(config.with_root_certificates(trusted).with_no_client_auth())
}

fn refused(error: &rustls::Error) -> RedisError {
    (ErrorKind::Io, "cannot encrypt", error.to_string()).into()
}

fn settings(why: &'static str) -> RedisError {
    (ErrorKind::InvalidClientConfig, why).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_keeps_its_choice_of_cryptography() {
        // Whatever certificates this host has.
        drop(config());
        // The process of this test has made none, and must find none made for it.
        assert!(CryptoProvider::get_default().is_none());
    }
}
