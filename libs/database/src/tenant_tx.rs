//! A transaction that row-level security confines to one tenant.

use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tenancy::TenantScope;

use crate::Error;

/// A transaction bound to one tenant. Dropped without a commit, it is rolled back.
pub struct TenantTx {
    transaction: Transaction<'static, Postgres>,
}

impl TenantTx {
    #[expect(clippy::disallowed_methods, reason = "this is the one home of transactions")]
    pub(crate) async fn begin(pool: &PgPool, scope: &TenantScope) -> Result<Self, Error> {
        let mut transaction = pool.begin().await?;
        // Local to the transaction: the next user of the connection starts without a tenant, and sees nothing.
        sqlx::query("select set_config('svc.tenant_id', $1, true)")
            .bind(scope.tenant_id().as_str())
            .execute(&mut *transaction)
            .await?;
        Ok(Self { transaction })
    }

    /// The connection to run statements on.
    pub fn connection(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }

    /// Makes everything done here true at once.
    ///
    /// # Errors
    /// The database is not available; then it may or may not have happened.
    pub async fn commit(self) -> Result<(), Error> {
        Ok(self.transaction.commit().await?)
    }
}
