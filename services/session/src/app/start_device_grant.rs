//! Start a device grant: a device asks for its codes.

use std::net::IpAddr;

use contract::Secret;
use contract::device::{DeviceCodes, DeviceRequest, StartDevice};
use hashing::{RawToken, TokenKind};
use ratelimit::{RateLimitError, source};
use tenancy::TenantId;

use super::App;
use crate::domain::device_grant::{INTERVAL, LIFETIME, shown_name};
use crate::domain::user_code::UserCode;
use crate::store::device_grant::{self, NewGrant};

/// Why a device got no codes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// Its address has asked too often, or nobody can tell.
    #[error(transparent)]
    Uncounted(#[from] RateLimitError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] database::Error),
}

impl App {
    /// The same for a tenant that is there and one that is not: its grant is never approved.
    pub(crate) async fn start_device_grant(
        &self,
        tenant_id: &TenantId,
        request: &StartDevice,
        ip: IpAddr,
    ) -> Result<DeviceCodes, StartError> {
        self.limiter.count(&self.limits.device, &source(ip)).await?;
        let now = self.clock.now();
        let device_code = RawToken::generate(TokenKind::DeviceCode, &*self.entropy);
        let name = |text: &Option<String>| text.as_deref().and_then(shown_name);
        let asking = DeviceRequest {
            client_name: name(&request.client_name).or_else(|| name(&request.client_id)),
            ip: Some(ip.to_string()),
            created_at: now,
        };
        let user_code = loop {
            let user_code = UserCode::generate(&*self.entropy);
            let grant = NewGrant {
                tenant_id,
                digest: device_code.digest(),
                user_code,
                asking: &asking,
                interval_seconds: INTERVAL,
                expires_at: now + LIFETIME,
            };
            // One in billions is taken; the next one is not.
            if device_grant::insert(&self.database, &grant).await? {
                break user_code;
            }
        };
        let page = format!("{}/api/v1/pages/device", self.public_url);
        Ok(DeviceCodes {
            device_code: Secret::new(device_code.expose()),
            user_code: user_code.to_string(),
            verification_uri_complete: format!("{page}#user_code={user_code}&tenant={tenant_id}"),
            verification_uri: page,
            expires_in: LIFETIME.num_seconds().unsigned_abs(),
            interval: INTERVAL.into(),
        })
    }
}
