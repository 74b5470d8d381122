//! Root certificates from PEM, each one checked, so that a client made of them does not fail for their sake.

use reqwest::Certificate;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::{TransportError, TransportErrorKind};

/// Every certificate of the text; at least one.
pub(super) fn parse(pem: &[u8]) -> Result<Vec<Certificate>, TransportError> {
    let mut store = RootCertStore::empty();
    let mut roots = Vec::new();
    for der in CertificateDer::pem_slice_iter(pem) {
        let der = der.map_err(|error| faulty(&error.to_string()))?;
        let root = Certificate::from_der(&der).map_err(|error| faulty(&error.to_string()))?;
        store.add(der).map_err(|error| faulty(&error.to_string()))?;
        roots.push(root);
    }
    if roots.is_empty() { Err(faulty("there is no PEM certificate among them")) } else { Ok(roots) }
}

fn faulty(why: &str) -> TransportError {
    let message = format!("the root certificates cannot be used: {why}");
    TransportError::new(TransportErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pem(body: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
    }

    #[test]
    fn what_holds_no_certificate_that_can_be_read_is_refused() {
        for text in ["", "nonsense", &pem("AAAA"), &pem("not base64!"), "-----BEGIN CERTIFICATE-----\nAAAA"] {
            assert_eq!(parse(text.as_bytes()).unwrap_err().kind, TransportErrorKind::Configuration, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            body in "[A-Za-z0-9+/=]{0,60}",
        ) {
            prop_assert!(parse(&bytes).is_err());
            prop_assert!(parse(pem(&body).as_bytes()).is_err());
        }
    }
}
