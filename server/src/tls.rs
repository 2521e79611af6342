//! TLS: the certificate and key from files, and the handshake with a time limit.

use crate::options::TlsFiles;
use crate::wire::WireError;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use strandline::{Error, Result, SqlState};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto::ring};

/// The protocol's name in ALPN, which a client that begins directly with TLS must offer.
const ALPN: &[u8] = b"postgresql";

/// The server's TLS configuration.
pub(crate) struct Tls {
    config: Arc<ServerConfig>,
    /// the chain as PEM, for channel binding
    pub certificate_pem: Vec<u8>,
}

impl Tls {
    /// Reads certificate and key.
    pub fn load(files: &TlsFiles) -> Result<Self> {
        let certificate_pem = read(&files.certificate)?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&certificate_pem)
            .collect::<Result<_, _>>()
            .map_err(|e| unusable(&files.certificate, e))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
            .map_err(|e| unusable(&files.key, e))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable(&files.certificate, e))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|e| unusable(&files.certificate, e))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            certificate_pem,
        })
    }

    /// Performs the handshake on `socket` before `deadline`. `direct`: the client has begun with
    /// TLS and must offer the protocol in ALPN.
    pub fn accept(
        &self,
        mut socket: TcpStream,
        deadline: Instant,
        direct: bool,
    ) -> Result<StreamOwned<ServerConnection, TcpStream>, WireError> {
        let mut tls = ServerConnection::new(self.config.clone()).map_err(failed)?;
        while tls.is_handshaking() || tls.wants_write() {
            while tls.wants_write() {
                tls.write_tls(&mut socket)?;
            }
            if !tls.is_handshaking() {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WireError::TimedOut);
            }
            socket.set_read_timeout(Some(left))?;
            if tls.read_tls(&mut socket)? == 0 {
                return Err(WireError::Io(ErrorKind::UnexpectedEof.into()));
            }
            if let Err(error) = tls.process_new_packets() {
                // The alert tells the client the cause.
                let _sent = tls.write_tls(&mut socket);
                return Err(failed(error));
            }
        }
        if direct && tls.alpn_protocol() != Some(ALPN) {
            return Err(WireError::Malformed(
                "received direct SSL connection request without ALPN protocol negotiation".into(),
            ));
        }
        socket.set_read_timeout(None)?;
        Ok(StreamOwned::new(tls, socket))
    }
}

fn failed(error: tokio_rustls::rustls::Error) -> WireError {
    WireError::Malformed(format!("TLS handshake failed: {error}"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::io(format!("reading \"{}\"", path.display()), &e))
}

fn unusable(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::invalid(
        SqlState("F0000"),
        format!("\"{}\" cannot be used for TLS: {error}", path.display()),
    )
}
