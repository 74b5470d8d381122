//! TLS of a connection to NATS. The files are read at each connection.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::connect::{CERTIFICATE, Config, KEY};

/// Returns the trusted certificates and the certificate of the client.
///
/// # Errors
/// A file cannot be read, or is malformed.
pub(super) async fn client_config(config: &Config) -> io::Result<Arc<ClientConfig>> {
    let config = config.clone();
    tokio::task::spawn_blocking(move || load(&config)).await?.map(Arc::new)
}

fn load(config: &Config) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match &config.ca_file {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(io::Error::other)?;
            }
        }
        // Certificates that cannot be read are not trusted.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let Some(directory) = &config.client_certificate else { return Ok(builder.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_file(directory.join(KEY)).map_err(io::Error::other)?;
    let certificate = certificates(&directory.join(CERTIFICATE))?;
    builder.with_client_auth_cert(certificate, key).map_err(io::Error::other)
}

fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_file_iter(file).map_err(io::Error::other)?;
    certificates.collect::<Result<_, _>>().map_err(io::Error::other)
}
