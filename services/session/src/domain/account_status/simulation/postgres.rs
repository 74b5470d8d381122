//! Compares the simulated records with those in Postgres: the same records in the same order must give the same account status.

use chrono::DateTime;
use tenancy::Actor;
use testkit::TestDatabase;

use super::*;
use crate::store::account_status::{apply_subject, apply_tenant, find_for_update};

#[test]
fn the_simulated_records_have_the_semantics_of_those_in_postgres() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let test = runtime.block_on(TestDatabase::create()).unwrap();
    let database = runtime.block_on(async { test.pool("svc_session") }).unwrap();
    proptest!(ProptestConfig::with_cases(100), |(steps in prop::collection::vec(step(), 1..60))| {
        runtime.block_on(async {
            let mut simulation = Simulation::new();
            let user_id = simulation.user_in_identity().user_id;
            // Never committed: the next case begins without records.
            let tenant_id = simulation.tenant_in_identity().tenant_id.clone();
            let mut tx = database.begin(&tenant_id, Actor::System, DateTime::UNIX_EPOCH).await.unwrap();
            for step in steps {
                simulation.run(step);
                for (record, is_applied) in std::mem::take(&mut simulation.received) {
                    let changed = match &record {
                        Record::User(record) => apply_subject(&mut tx, record).await,
                        Record::Tenant(record) => apply_tenant(&mut tx, record).await,
                    };
                    assert_eq!(changed.unwrap(), is_applied, "{record:?}");
                }
                assert_eq!(find_for_update(&mut tx, user_id).await.unwrap(), simulation.account());
            }
        });
    });
}
