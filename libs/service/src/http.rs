//! HTTP edge: listeners, request ids, bounded bodies and problem documents.

mod api;
pub mod body;
mod client_address;
pub mod edge;
mod headers;
pub mod listen;
mod measure;
pub mod page;
pub mod path;
pub mod problem;
mod request_id;

pub use api::Api;
pub use body::JsonBody;
pub use client_address::{ClientAddress, TrustedProxies};
pub use edge::{Edge, not_found};
pub use headers::{HeaderError, SessionHeader, TenantHeader, UserHeader};
pub use listen::{PeerAddress, serve};
pub use request_id::{RequestId, X_REQUEST_ID};
