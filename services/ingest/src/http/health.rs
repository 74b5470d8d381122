//! `/health`: can events be accepted now?

use axum::Json;
use axum::extract::State;
use contract::ProblemKind;
use contract::events::{Health, HealthStatus};
use service::Problem;

use crate::app::App;

/// `GET`: anybody.
pub(super) async fn read(State(app): State<App>) -> Result<Json<Health>, Problem> {
    if app.publisher.healthy() {
        return Ok(Json(Health { status: HealthStatus::Ok }));
    }
    Err(Problem::new(ProblemKind::DependencyUnavailable).detail("The event stream cannot be reached now."))
}
