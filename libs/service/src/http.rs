//! HTTP edge: listeners, request ids, bounded bodies and problem documents.

pub mod body;
mod client_address;
pub mod edge;
mod extract;
pub mod listen;
mod measure;
pub mod problem;

pub use body::JsonBody;
pub use client_address::{ClientAddress, TrustedProxies};
pub use edge::{Api, Edge, not_found};
pub use extract::{
    HeaderError, Id, Paging, RequestId, SessionHeader, TenantHeader, UserHeader, X_REQUEST_ID,
};
pub use listen::{PeerAddress, serve};
