//! Consumers that the operator manages.

use axum::extract::State;
use axum::{Extension, Json};
use contract::managed::{ConsumerReference, ManagedConsumer, OperatorId, StoredConsumer, WrittenConsumer};
use http::StatusCode;
use service::Problem;
use service::http::{After, Id, InternalJson, QueryParameters, WriteError};
use uuid::Uuid;

use crate::app::App;

/// `GET /internal/v1/consumers?after=<uid>`: at most 1,000 consumers of the operator in the order of their uids.
pub(super) async fn list(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    QueryParameters(After { after }): QueryParameters<After<Uuid>>,
) -> Result<Json<Vec<StoredConsumer>>, Problem> {
    Ok(Json(app.list_managed_consumers(&by, after).await?))
}

/// `PUT /internal/v1/consumers/{uid}`: 200 with a `WrittenConsumer`, or 409 with a `Conflict`.
pub(super) async fn put(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    Id(uid): Id<Uuid>,
    InternalJson(write): InternalJson<ManagedConsumer, 65_536>,
) -> Result<Json<WrittenConsumer>, WriteError> {
    Ok(Json(app.put_managed_consumer(uid, by, write).await?))
}

/// `POST /internal/v1/consumers/{uid}/login`: 200 with a `WrittenConsumer`, 404, or 409 with a `Conflict`.
pub(super) async fn renew_login(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    Id(uid): Id<Uuid>,
    InternalJson(of): InternalJson<ConsumerReference>,
) -> Result<Json<WrittenConsumer>, WriteError> {
    Ok(Json(app.renew_managed_login(uid, &by, &of).await?))
}

/// `DELETE /internal/v1/consumers/{uid}?name=<name>&is_final=<bool>`: 204, also if there is no such consumer, or 409 with a `Conflict`.
pub(super) async fn delete(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    Id(uid): Id<Uuid>,
    QueryParameters(of): QueryParameters<ConsumerReference>,
) -> Result<StatusCode, WriteError> {
    app.delete_managed_consumer(uid, &by, &of).await?;
    Ok(StatusCode::NO_CONTENT)
}
