//! The expiry sweep.

use chrono::TimeDelta;

use crate::context::{Context, subject, tenant};

#[tokio::test]
async fn process_sweeps_when_it_starts() {
    let context = Context::start().await;
    let token = context.issue(&subject(), &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::hours(2));
    let _replica = context.start_replica();
    let mut connection = context.database.superuser().await.unwrap();
    let select = "select payload #>> '{event,credential}' from session.outbox where payload ->> 'name' = 'session_expired'";
    testkit::wait_until("the expired session is audited", async || {
        let audited: Vec<String> = sqlx::query_scalar(select).fetch_all(&mut connection).await.unwrap();
        (audited == [token.digest().prefix()]).then_some(())
    })
    .await;
}
