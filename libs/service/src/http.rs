//! HTTP edge: listeners, request ids, bounded bodies and problem documents.

pub mod body;
mod client_address;
mod connections;
pub mod edge;
mod extract;
pub mod listen;
mod managed;
mod measure;
mod oauth;
mod pace;
pub mod problem;
mod request_body;
mod response_body;
mod shape;
mod stream;

pub use crate::telemetry::{RequestId, X_REQUEST_ID};
pub use body::{InternalJson, JsonBody};
#[cfg(fuzzing)]
pub use client_address::fuzzed_client;
pub use client_address::{ClientAddress, PeerAddress, TrustedProxies};
pub use edge::{Api, Edge, ErrorPage, not_found};
pub use extract::{
    Filtered, Filters, HeaderError, Id, Paging, QueryParameters, SessionHeader, TenantHeader, UserHeader,
    user_agent,
};
pub use listen::{ConnectionSettings, serve, serve_public};
pub use managed::{After, WriteError};
pub use response_body::HeldBody;
