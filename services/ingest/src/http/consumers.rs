//! `/consumers`.

use authn::PlatformAdmin;
use axum::Json;
use axum::extract::State;
use bus::Creation;
use contract::Page;
use contract::consumers::{
    Consumer, ConsumerName, CreateConsumer, DeadLetter, DeadLetterSequences, DeletedDeadLetters,
    ReplayedDeadLetters,
};
use http::StatusCode;
use service::Problem;
use service::http::{Id, JsonBody, Paging};

use crate::app::App;

/// `POST /consumers`: the platform administrator.
pub(super) async fn create(
    _: PlatformAdmin,
    State(app): State<App>,
    JsonBody(request): JsonBody<CreateConsumer>,
) -> Result<(StatusCode, Json<Consumer>), Problem> {
    let (consumer, creation) = app.create_consumer(request).await?;
    let status = match creation {
        Creation::Created => StatusCode::CREATED,
        Creation::Existing => StatusCode::OK,
    };
    Ok((status, Json(consumer)))
}

/// `GET /consumers`: the platform administrator.
pub(super) async fn list(
    _: PlatformAdmin,
    State(app): State<App>,
    paging: Paging<ConsumerName>,
) -> Result<Json<Page<Consumer>>, Problem> {
    Ok(Json(app.list_consumers(&paging).await?))
}

/// `DELETE /consumers/{consumer_name}`: the platform administrator.
pub(super) async fn delete(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(name): Id<ConsumerName>,
) -> Result<StatusCode, Problem> {
    app.delete_consumer(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /consumers/{consumer_name}/dead-letters`: the platform administrator.
pub(super) async fn list_dead_letters(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(name): Id<ConsumerName>,
    paging: Paging<u64>,
) -> Result<Json<Page<DeadLetter>>, Problem> {
    Ok(Json(app.list_dead_letters(&name, &paging).await?))
}

/// `POST /consumers/{consumer_name}/dead-letters/replay`: the platform administrator.
pub(super) async fn replay_dead_letters(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(name): Id<ConsumerName>,
    JsonBody(request): JsonBody<DeadLetterSequences>,
) -> Result<Json<ReplayedDeadLetters>, Problem> {
    Ok(Json(app.replay_dead_letters(&name, &request.sequences).await?))
}

/// `POST /consumers/{consumer_name}/dead-letters/delete`: the platform administrator.
pub(super) async fn delete_dead_letters(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(name): Id<ConsumerName>,
    JsonBody(request): JsonBody<DeadLetterSequences>,
) -> Result<Json<DeletedDeadLetters>, Problem> {
    Ok(Json(app.delete_dead_letters(&name, &request.sequences).await?))
}
