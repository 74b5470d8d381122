//! Access of the Kubernetes operator to the internal APIs: the token of its service account instead of the service token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use contract::ProblemKind;
use contract::managed::{OperatorId, ServiceAccount, X_OPERATOR_ID};
use http::HeaderMap;
use service::config::Variable;
use service::{Clock, Problem};

use crate::token_review::{KubernetesApi, TokenReviewer};
use crate::{Bearer, bearer};

service::variables! {
    /// Who may use the routes of the operator.
    #[derive(Clone, Debug)]
    pub struct OperatorSettings {
        /// Kubernetes service account of the operator, which manages tenants, producers and consumers. If it is unset, the internal API
        /// has no routes for it.
        account: Option<ServiceAccount> = Variable::new("SVC_OPERATOR", "NAMESPACE/NAME").optional(),
        /// The API server that reviews its tokens.
        pub kubernetes: KubernetesApi,
    }
}

/// Accepts the tokens of the operator.
#[derive(Clone)]
pub struct OperatorAccess {
    account: ServiceAccount,
    reviewer: TokenReviewer,
}

impl OperatorSettings {
    /// Returns the access for tokens with this audience; `None` without an operator.
    ///
    /// # Errors
    /// The CA certificates of the API server cannot be read.
    pub fn access(
        self,
        audience: &'static str,
        clock: Arc<dyn Clock>,
    ) -> Result<Option<OperatorAccess>, Box<dyn std::error::Error + Send + Sync>> {
        let Some(account) = self.account else { return Ok(None) };
        Ok(Some(OperatorAccess { account, reviewer: TokenReviewer::new(&self.kubernetes, audience, clock)? }))
    }
}

/// Middleware of the internal listener that requires a token of the operator, and its id: an extension of the request.
pub async fn operator_only(
    State(access): State<OperatorAccess>,
    mut request: Request,
    next: Next,
) -> Response {
    let rejection = match bearer(request.headers(), &[]) {
        Bearer::ServiceAccountToken(token) => match access.reviewer.review(&token).await {
            Ok(Some(account)) if account == access.account => match operator_id(request.headers()) {
                Some(id) => {
                    request.extensions_mut().insert(id);
                    return next.run(request).await;
                }
                None => ProblemKind::ValidationFailed.into(),
            },
            Ok(Some(_)) => ProblemKind::Forbidden.into(),
            Ok(None) => ProblemKind::CredentialInvalid.into(),
            Err(error) => Problem::from(error),
        },
        Bearer::Missing => ProblemKind::Unauthenticated.into(),
        Bearer::Malformed | Bearer::Token(_) => ProblemKind::CredentialInvalid.into(),
    };
    rejection.into_response()
}

fn operator_id(headers: &HeaderMap) -> Option<OperatorId> {
    headers.get(X_OPERATOR_ID)?.to_str().ok()?.parse().ok()
}
