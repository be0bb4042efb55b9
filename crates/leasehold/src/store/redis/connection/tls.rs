//! Encrypted connections.
//!
//! The program chooses its cryptography provider. This module uses that choice if there is one, and never makes it for
//! the whole program.

use std::sync::Arc;

use redis::{ErrorKind, RedisError, RedisResult};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Encrypts a connection to `host` as `config` says. By default the certificate must be signed by an authority that the
/// system trusts.
pub(super) async fn over<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    host: &str,
    config: Option<&Arc<ClientConfig>>,
) -> RedisResult<TlsStream<S>> {
    let name = ServerName::try_from(host.trim_matches(['[', ']']))
        .map_err(|error| refused(&error))?
        .to_owned();
    let config = config.map_or_else(|| usual().map(Arc::new), |config| Ok(config.clone()))?;
    Ok(TlsConnector::from(config).connect(name, stream).await?)
}

fn usual() -> RedisResult<ClientConfig> {
    let provider = CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(ring::default_provider()));
    let mut found = rustls_native_certs::load_native_certs();
    if let Some(error) = found.errors.pop() {
        return Err(refused(&error));
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

fn refused(error: &impl ToString) -> RedisError {
    (ErrorKind::Io, "cannot encrypt", error.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_keeps_its_choice_of_cryptography() {
        // The result depends on the certificates of this host.
        drop(usual());
        // This test process has installed no provider, and `usual` must not install one.
        assert!(CryptoProvider::get_default().is_none());
    }
}
