//! Redeem a device grant: the device asks whether it was let in, and gets its session once.

use std::net::IpAddr;

use contract::device::{DeviceError, DeviceSession};
use contract::session::SessionMethod;
use hashing::{RawToken, TokenKind};
use ratelimit::{RateLimitError, source};
use tenancy::TenantScope;

use super::App;
use super::make_session::Made;
use crate::domain::device_grant::DeviceGrant;
use crate::domain::session::NewSession;
use crate::store::device_grant;

/// Why the device got no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RedeemError {
    /// It is told so in the words of RFC 8628.
    #[error("the device gets no session")]
    Refused(DeviceError),
    /// Its address has shown too many codes that never were, or nobody can tell.
    #[error(transparent)]
    Uncounted(#[from] RateLimitError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] database::Error),
}

/// The device that asks.
pub(crate) struct Device {
    pub(crate) ip: IpAddr,
    pub(crate) user_agent: Option<String>,
}

impl App {
    /// Of two that ask at once, one gets the session. It is made under the standing at the approval: whoever was disabled
    /// or has changed their password since has let nobody in.
    pub(crate) async fn redeem_device_grant(
        &self,
        device_code: &str,
        device: Device,
    ) -> Result<DeviceSession, RedeemError> {
        let invalid = || RedeemError::Refused(DeviceError::InvalidGrant);
        let device_code = RawToken::parse(TokenKind::DeviceCode, device_code).map_err(|_| invalid())?;
        let now = self.clock.now();
        let polled = device_grant::poll(&self.database, device_code.digest(), now).await?;
        let Some(polled) = polled else {
            self.limiter.count(&self.limits.device, &source(device.ip)).await?;
            return Err(invalid());
        };
        let standing = polled.grant.redeem(polled.early).map_err(RedeemError::Refused)?;

        let mut tx = self.database.tenant(&TenantScope::of_token(polled.tenant_id.clone())).await?;
        let session = NewSession {
            tenant_id: polled.tenant_id,
            standing,
            method: SessionMethod::Device,
            ip: Some(device.ip),
            user_agent: device.user_agent,
        };
        // The user's row first, as whoever decides locks it too.
        let Made { session, surplus } = self.make_session(&mut tx, session).await?.ok_or_else(invalid)?;
        if !device_grant::save(&mut tx, polled.grant_id, DeviceGrant::Redeemed).await? {
            return Err(invalid());
        }
        tx.commit().await?;
        self.invalidations.publish(surplus);

        let scopes: Vec<_> = session.role.scopes().iter().map(|scope| scope.as_str()).collect();
        Ok(DeviceSession {
            access_token: session.session_id.clone(),
            expires_in: (session.expires_at - now).num_seconds().unsigned_abs(),
            scope: scopes.join(" "),
            session,
        })
    }
}
