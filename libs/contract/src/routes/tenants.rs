//! `/tenants`.

use super::{Access, Answer, PAGING, Route, routes};
use crate::identity::{CreateTenant, PatchTenant, Tenant};
use crate::{Page, ProblemKind};

routes! {
    "Tenants", "Organisations that share nothing. The operator of the installation creates them.":

    /// Create a tenant
    ///
    /// With `admin_email`, its first administrator is invited too; with `"delivery": "response"`, the invite's token
    /// stands in the answer, and nowhere else.
    CREATE_TENANT = Route::post("/tenants")
        .access(&[Access::PlatformAdmin])
        .takes::<CreateTenant>()
        .answers(&[Answer::json::<Tenant>(201, "The tenant, with the administrator's invite when one was asked for.")])
        .problems(&[ProblemKind::TenantExists, ProblemKind::MailUnavailable]);

    /// List the tenants
    LIST_TENANTS = Route::get("/tenants")
        .access(&[Access::PlatformAdmin])
        .query(&[PAGING])
        .answers(&[Answer::json::<Page<Tenant>>(200, "A page of tenants, by id.")]);

    /// Read a tenant
    GET_TENANT = Route::get("/tenants/{tenant_id}")
        .access(&[Access::PlatformAdmin, Access::Member])
        .answers(&[Answer::json::<Tenant>(200, "The tenant.")]);

    /// Rename, suspend or resume a tenant, or change its quota
    ///
    /// What is absent stays. Suspension ends the tenant's sessions at once and refuses its keys until it is resumed.
    UPDATE_TENANT = Route::patch("/tenants/{tenant_id}")
        .access(&[Access::PlatformAdmin])
        .takes::<PatchTenant>()
        .answers(&[Answer::json::<Tenant>(200, "The tenant as it is now.")]);
}
