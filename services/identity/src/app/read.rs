//! Read tenants and users.

use contract::identity::{Tenant, User};
use contract::{Page, ProblemKind};
use service::Problem;
use service::http::page::Paging;
use tenancy::{TenantId, TenantScope, UserId};

use super::App;
use crate::store::{tenant, user};

impl App {
    /// Any tenant, for whoever has a right to it.
    pub(crate) async fn tenant(&self, scope: &TenantScope) -> Result<Tenant, Problem> {
        let mut tx = self.database.tenant(scope).await?;
        let found = tenant::find(&mut tx, scope.tenant_id()).await?;
        found.ok_or_else(|| ProblemKind::NotFound.into())
    }

    /// All tenants, for the operator.
    pub(crate) async fn tenants(&self, paging: &Paging<TenantId>) -> Result<Page<Tenant>, Problem> {
        let after = paging.after.as_ref().map_or("", TenantId::as_str);
        let tenants = tenant::list(&self.database, after, paging.rows()).await?;
        Ok(paging.page(tenants, |tenant| tenant.tenant_id.clone()))
    }

    /// A user of the tenant.
    pub(crate) async fn user(&self, scope: &TenantScope, user_id: UserId) -> Result<User, Problem> {
        let mut tx = self.database.tenant(scope).await?;
        let found = user::find(&mut tx, user_id).await?;
        found.ok_or_else(|| ProblemKind::NotFound.into())
    }
}
