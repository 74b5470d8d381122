//! `/consumers`.

use authn::PlatformAdmin;
use axum::Json;
use axum::extract::State;
use contract::Page;
use contract::consumers::{
    Consumer, ConsumerAccounts, ConsumerName, CreateConsumer, CreatedConsumer, DeadLetter,
    DeadLetterSequences, HandledDeadLetters, ResetConsumer, TenantQuery,
};
use http::StatusCode;
use service::Problem;
use service::http::{Filtered, Id, JsonBody};

use super::{AnyAdmin, limited};
use crate::app::App;

/// `POST /consumers`: the platform administrator.
pub(super) async fn create(
    _: PlatformAdmin,
    State(app): State<App>,
    JsonBody(request): JsonBody<CreateConsumer>,
) -> Result<(StatusCode, Json<CreatedConsumer>), Problem> {
    let created = app.create_consumer(request).await?;
    let status = if created.login.is_some() { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(created)))
}

/// `GET /consumers`: the platform administrator for one tenant or all, or an administrator of a tenant for its consumers.
pub(super) async fn list(
    State(app): State<App>,
    AnyAdmin(tenant, _): AnyAdmin,
    Filtered { paging, filter }: Filtered<ConsumerName, TenantQuery>,
) -> Result<Json<Page<Consumer>>, Problem> {
    let _admitted = app.audit.admit(tenant.as_ref())?;
    let tenant = limited(tenant, filter.tenant_id)?;
    Ok(Json(app.list_consumers(tenant.as_ref(), &paging).await?))
}

/// `GET /consumers/_accounts`: the platform administrator.
pub(super) async fn accounts(
    _: PlatformAdmin,
    State(app): State<App>,
) -> Result<Json<ConsumerAccounts>, Problem> {
    Ok(Json(app.consumer_accounts().await?))
}

/// `GET /consumers/{consumer_name}`: the platform administrator, or an administrator of its tenant.
pub(super) async fn get(
    State(app): State<App>,
    AnyAdmin(tenant, _): AnyAdmin,
    Id(name): Id<ConsumerName>,
) -> Result<Json<Consumer>, Problem> {
    let _admitted = app.audit.admit(tenant.as_ref())?;
    Ok(Json(app.get_consumer(tenant.as_ref(), name).await?))
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

/// `POST /consumers/{consumer_name}/rotate-login`: the platform administrator.
pub(super) async fn rotate_login(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(name): Id<ConsumerName>,
) -> Result<Json<CreatedConsumer>, Problem> {
    Ok(Json(app.rotate_consumer_login(name).await?))
}

/// `POST /consumers/{consumer_name}/pause`: the platform administrator.
pub(super) async fn pause(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(name): Id<ConsumerName>,
) -> Result<Json<Consumer>, Problem> {
    Ok(Json(app.pause_consumer(name, true).await?))
}

/// `POST /consumers/{consumer_name}/resume`: the platform administrator.
pub(super) async fn resume(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(name): Id<ConsumerName>,
) -> Result<Json<Consumer>, Problem> {
    Ok(Json(app.pause_consumer(name, false).await?))
}

/// `POST /consumers/{consumer_name}/reset`: the platform administrator.
pub(super) async fn reset(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(name): Id<ConsumerName>,
    JsonBody(request): JsonBody<ResetConsumer>,
) -> Result<Json<Consumer>, Problem> {
    Ok(Json(app.reset_consumer(name, request.to).await?))
}

/// `GET /consumers/{consumer_name}/dead-letters`: the platform administrator.
pub(super) async fn list_dead_letters(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(name): Id<ConsumerName>,
    Filtered { paging, filter }: Filtered<u64, TenantQuery>,
) -> Result<Json<Page<DeadLetter>>, Problem> {
    Ok(Json(app.list_dead_letters(&name, filter.tenant_id.as_ref(), &paging).await?))
}

/// `POST /consumers/{consumer_name}/dead-letters/replay`: the platform administrator.
pub(super) async fn replay_dead_letters(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(name): Id<ConsumerName>,
    JsonBody(request): JsonBody<DeadLetterSequences>,
) -> Result<Json<HandledDeadLetters>, Problem> {
    Ok(Json(app.replay_dead_letters(&name, &request).await?))
}

/// `POST /consumers/{consumer_name}/dead-letters/delete`: the platform administrator.
pub(super) async fn delete_dead_letters(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(name): Id<ConsumerName>,
    JsonBody(request): JsonBody<DeadLetterSequences>,
) -> Result<Json<HandledDeadLetters>, Problem> {
    Ok(Json(app.delete_dead_letters(&name, &request).await?))
}
