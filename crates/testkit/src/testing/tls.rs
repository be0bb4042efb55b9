//! A certificate authority and a certificate for one server, in that server's directory. Keys are
//! never reused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

// A private configuration, since the system's openssl.cnf differs between systems.
// rustls takes a leaf only if it is no CA and names the host in its SAN.
const CONFIG: &str = "\
[req]
distinguished_name = name
prompt = no
[name]
CN = leasehold-testkit
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[own]
basicConstraints = critical, CA:TRUE
subjectAltName = IP:127.0.0.1, DNS:localhost
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = IP:127.0.0.1, DNS:localhost
";

/// The signer of a server's certificate.
#[derive(Debug, Clone)]
pub(crate) enum Signed {
    ByAuthority,
    ByItself,
    /// It is the certificate of another server.
    Already(Certificates),
}

/// Paths of the files made by [`generate`].
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// Makes a CA and a certificate for 127.0.0.1 and localhost signed by it, valid for ten years. A self-signed certificate is its own CA, as
/// `openssl req -x509` makes it.
pub(crate) fn generate(dir: &Path, signed: Signed) -> Certificates {
    fs::write(dir.join("openssl.cnf"), CONFIG).expect("write openssl.cnf");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config openssl.cnf";
    let own = format!("{key} -keyout server.key");
    let authority = match signed {
        Signed::ByItself => {
            openssl(
                dir,
                &format!(
                    "req -x509 {own} -out server.crt -days 3650 -subj /CN=localhost -extensions own"
                ),
            );
            "server.crt"
        }
        Signed::Already(files) => return files,
        Signed::ByAuthority => {
            openssl(
                dir,
                &format!(
                    "req -x509 {key} -keyout ca.key -out ca.crt -days 3650 -subj /CN=testkit-ca -extensions ca"
                ),
            );
            openssl(
                dir,
                &format!("req -new {own} -out server.csr -subj /CN=localhost"),
            );
            openssl(
                dir,
                "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -set_serial 2 -days 3650 \
                 -extfile openssl.cnf -extensions leaf -out server.crt",
            );
            "ca.crt"
        }
    };
    Certificates {
        ca: dir.join(authority),
        cert: dir.join("server.crt"),
        key: dir.join("server.key"),
    }
}

/// Runs in `dir` with relative names, so that the arguments can be split at spaces.
fn openssl(dir: &Path, words: &str) {
    let done = Command::new("openssl")
        .args(words.split_whitespace())
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("TLS tests need the openssl command: {error}"));
    let complaints = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success(),
        "openssl {words} failed:\n{complaints}"
    );
}
