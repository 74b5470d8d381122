//! `/pages/files`: style sheets, scripts and images. They cost no lookup and no rate limit.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::response::Response;
use data_encoding::HEXLOWER;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY};
use sha1::{Digest as _, Sha1};

use super::document;
use crate::branding::Branding;

/// A logo that is opened as a document runs no scripts and loads nothing.
const LOGO_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The first bytes of a compressed file (RFC 1952, section 2.3.1).
const GZIP: &[u8] = b"\x1f\x8b";
/// The logo, and the one on dark backgrounds.
const LOGOS: [&str; 2] = ["logo", "logo-dark"];

const SCRIPTS: [(&str, &str); 12] = [
    ("failure.js", include_str!("failure.js")),
    ("page.js", include_str!("page.js")),
    ("passkey.js", include_str!("passkey.js")),
    ("login.js", include_str!("login.js")),
    ("change-password.js", include_str!("change-password.js")),
    ("token.js", include_str!("token.js")),
    ("token-form.js", include_str!("token-form.js")),
    ("request-reset.js", include_str!("request-reset.js")),
    ("device.js", include_str!("device.js")),
    ("factors.js", include_str!("factors.js")),
    ("sessions.js", include_str!("sessions.js")),
    ("docs.js", include_str!("docs.js")),
];

/// The style sheets, scripts and images of the pages.
pub(super) struct Files {
    /// Digest of all files. It is part of their addresses, so that browsers keep them until one changes.
    version: String,
    by_name: BTreeMap<&'static str, PageFile>,
}

struct PageFile {
    content_type: &'static str,
    content: Bytes,
}

impl Files {
    pub(super) fn new(branding: &Branding) -> Self {
        let (light, dark) = (&branding.accent.light, &branding.accent.dark);
        let style = format!(
            ":root {{ --accent: {light}; }}\n@media (prefers-color-scheme: dark) {{ :root {{ --accent: {dark}; }} }}\n{}",
            include_str!("style.css")
        );
        let mut by_name = BTreeMap::new();
        let mut insert = |name, content_type, content: Bytes| {
            by_name.insert(name, PageFile { content_type, content });
        };
        insert("style.css", CSS, style.into());
        for (name, content) in SCRIPTS {
            insert(name, SCRIPT, Bytes::from_static(content.as_bytes()));
        }
        insert(
            "swagger-ui.css",
            CSS,
            Bytes::from_static(include_bytes!("../../../swagger-ui/swagger-ui.css.gz")),
        );
        insert(
            "swagger-ui.js",
            SCRIPT,
            Bytes::from_static(include_bytes!("../../../swagger-ui/swagger-ui.js.gz")),
        );
        for (name, logo) in LOGOS.into_iter().zip([&branding.logo, &branding.logo_dark]) {
            if let Some(logo) = logo {
                insert(name, logo.media_type, logo.content.clone().into());
            }
        }
        let mut digest = Sha1::new();
        for (name, file) in &by_name {
            digest.update(name);
            digest.update(Sha1::digest(&file.content));
        }
        Self { version: HEXLOWER.encode(&digest.finalize()), by_name }
    }

    /// Returns the path of the files.
    pub(super) fn path(&self) -> String {
        format!("/api/v1/pages/files/{}", self.version)
    }

    /// Returns a file of a version. While replicas are updated, a page can name the version of another replica. It then gets the file
    /// of this one, which the browser does not keep.
    pub(super) fn get(&self, version: &str, name: &str) -> Option<Response> {
        let &PageFile { content_type, ref content } = self.by_name.get(name)?;
        let mut response = document(content_type, content.clone());
        let headers = response.headers_mut();
        if version == self.version {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
        }
        if LOGOS.contains(&name) {
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(LOGO_POLICY));
        }
        if content.starts_with(GZIP) {
            // Every browser accepts gzip.
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Some(response)
    }
}
