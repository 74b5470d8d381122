//! Audit events of tenants.

use super::{Access, Operation, PAGING, RateLimit, Route, RouteResponse, SchemaRef, routes};
use crate::audit::{AuditQuery, AuditRecord};
use crate::{Page, ProblemKind};

routes! {
    AUDIT = "Audit", "Audit events of tenants, users and credentials.":

    /// List audit events
    ///
    /// In the order of the stream, the oldest first. An administrator of a tenant gets the events of this tenant, the platform
    /// administrator those of all tenants. A member gets the events that the member caused or is affected by. A request reads at most
    /// 1,000 events and 2 seconds, so a page can have fewer items than `limit`, or none, and a `next_cursor`. To continue after the
    /// last page, send the last `position` in `after`. An event can occur twice with the same `id`.
    LIST_AUDIT = Operation::get("/audit")
        .access(&[Access::Member, Access::PlatformAdmin])
        .rate_limit(RateLimit::Credential)
        .query(&[PAGING, SchemaRef::new::<AuditQuery>()])
        .responses(&[RouteResponse::json::<Page<AuditRecord>>(200, "A page of audit events.")])
        .problems(&[ProblemKind::Forbidden, ProblemKind::NotFound, ProblemKind::Overloaded]);
}
