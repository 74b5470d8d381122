//! Consumers that the operator manages.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use contract::managed::{Conflict, ConsumerReference, ManagedConsumer, OperatorId, StoredConsumer};
use http::StatusCode;
use serde::Deserialize;
use service::Problem;
use service::http::{Id, JsonBody, QueryParameters};
use uuid::Uuid;

use crate::app::App;

/// The position in a list.
#[derive(Deserialize)]
pub(super) struct After {
    #[serde(default)]
    after: Uuid,
}

/// `GET /internal/v1/consumers?after=<uid>`: at most 1,000 consumers of the operator in the order of their uids.
pub(super) async fn list(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    QueryParameters(After { after }): QueryParameters<After>,
) -> Result<Json<Vec<StoredConsumer>>, Problem> {
    Ok(Json(app.list_managed_consumers(&by, after).await?))
}

/// `PUT /internal/v1/consumers/{uid}`: 200 with a `WrittenConsumer`, or 409 with a `Conflict`.
pub(super) async fn put(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    Id(uid): Id<Uuid>,
    JsonBody(write): JsonBody<ManagedConsumer, 65_536>,
) -> Result<Response, Problem> {
    Ok(match app.put_managed_consumer(uid, by, write).await? {
        Ok(written) => Json(written).into_response(),
        Err(conflict) => rejected(&conflict),
    })
}

/// `POST /internal/v1/consumers/{uid}/login`: 200 with a `WrittenConsumer`, 404, or 409 with a `Conflict`.
pub(super) async fn renew_login(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    Id(uid): Id<Uuid>,
    JsonBody(of): JsonBody<ConsumerReference>,
) -> Result<Response, Problem> {
    Ok(match app.renew_managed_login(uid, &by, &of).await? {
        Ok(written) => Json(written).into_response(),
        Err(conflict) => rejected(&conflict),
    })
}

/// `DELETE /internal/v1/consumers/{uid}?name=<name>&is_final=<bool>`: 204, also if there is no such consumer, or 409 with a `Conflict`.
pub(super) async fn delete(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    Id(uid): Id<Uuid>,
    QueryParameters(of): QueryParameters<ConsumerReference>,
) -> Result<Response, Problem> {
    Ok(match app.delete_managed_consumer(uid, &by, &of).await? {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(conflict) => rejected(&conflict),
    })
}

fn rejected(conflict: &Conflict) -> Response {
    (StatusCode::CONFLICT, Json(conflict)).into_response()
}
