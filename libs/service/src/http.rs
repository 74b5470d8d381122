//! HTTP edge: listeners, request ids, bounded bodies and problem documents.

pub mod body;
mod client_address;
mod connections;
pub mod edge;
mod extract;
pub mod listen;
mod measure;
pub mod problem;
mod shape;
mod stream;

pub use body::JsonBody;
#[cfg(fuzzing)]
pub use client_address::fuzzed_client;
pub use client_address::{ClientAddress, TrustedProxies};
pub use edge::{Api, Edge, not_found};
pub use extract::{
    HeaderError, Id, Paging, QueryParameters, RequestId, SessionHeader, TenantHeader, UserHeader,
    X_REQUEST_ID,
};
pub use listen::{ConnectionSettings, PeerAddress, serve, serve_public};
