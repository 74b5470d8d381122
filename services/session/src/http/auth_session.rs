//! `/auth/session`: who the credential is.

use authn::Caller;
use axum::Json;
use contract::internal::Credential;
use contract::session::{SubjectType, Whoami};

/// `GET`: any live credential.
pub(super) async fn whoami(caller: Caller) -> Json<Whoami> {
    let scopes = caller.scopes().to_vec();
    let subject = caller.subject();
    let (tenant_id, expires_at) = (subject.tenant_id.clone(), subject.expires_at);
    Json(match &subject.credential {
        Credential::Session { user_id, role, method, idle_expires_at, .. } => Whoami {
            subject_type: SubjectType::User,
            user_id: Some(*user_id),
            key_id: None,
            tenant_id,
            role: Some(*role),
            scopes,
            method: Some(*method),
            expires_at,
            idle_expires_at: Some(*idle_expires_at),
        },
        Credential::ApiKey { key_id, .. } => Whoami {
            subject_type: SubjectType::ApiKey,
            user_id: None,
            key_id: Some(*key_id),
            tenant_id,
            role: None,
            scopes,
            method: None,
            expires_at,
            idle_expires_at: None,
        },
    })
}
