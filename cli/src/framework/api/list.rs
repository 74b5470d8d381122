//! Lists, read page by page.

use std::collections::HashSet;

use clap::Args;
use contract::{Page, ProblemKind, routes};
use reqwest::Method;
use serde::de::DeserializeOwned;
use tenancy::TenantId;

use super::Api;
use crate::framework::arguments::up_to;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::{ItemList, Row};

/// Largest page of the service.
const MAX_PAGE_SIZE: u32 = 200;

/// Options of commands that print lists.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Paging {
    /// Maximum number of items [default: all].
    #[arg(long, value_name = "COUNT", value_parser = up_to(u32::MAX))]
    limit: Option<u32>,
}

/// Query parameters; those without a value are omitted.
type Filter<'a> = &'a [(&'static str, Option<&'a str>)];

impl Api {
    /// Reads all items of the list at a path.
    pub(crate) async fn list_all<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        self.list(path, &[], None).await
    }

    /// Reads the items of the list at a path that match the filter, up to a limit.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        filter: Filter<'_>,
        limit: Option<u32>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        let take = |page: Vec<T>| -> Result<()> {
            items.extend(page);
            Ok(())
        };
        self.read_pages(path, filter, limit, take).await?;
        Ok(items)
    }

    /// Reads the items that a command prints: all, or up to the limit of the options. Warns if the limit omits items. NDJSON is printed
    /// as it is read, so that a list of any length fits in memory; then no items remain to be printed.
    pub(crate) async fn print_list<T: DeserializeOwned + Row>(
        &self,
        path: &str,
        filter: Filter<'_>,
        paging: Paging,
    ) -> Result<ItemList<T>> {
        Ok(self.print_pages(path, filter, paging).await?.0)
    }

    /// As [`print_list`](Self::print_list). Also returns whether any item was read.
    async fn print_pages<T: DeserializeOwned + Row>(
        &self,
        path: &str,
        filter: Filter<'_>,
        paging: Paging,
    ) -> Result<(ItemList<T>, bool)> {
        let (mut list, mut next, mut is_any) = (ItemList { items: Vec::new() }, None, false);
        let take = |page: Vec<T>| -> Result<()> {
            is_any |= !page.is_empty();
            next = page.last().and_then(Row::next_options).or(next.take());
            list.items.extend(page);
            if self.out.is_ndjson() {
                self.out.print(&list)?;
                list.items.clear();
            }
            Ok(())
        };
        let is_cut = self.read_pages(path, filter, paging.limit, take).await?;
        if let Some(limit) = paging.limit.filter(|_| is_cut) {
            let next = next.map(|options| format!("; continue with {options}")).unwrap_or_default();
            self.out.warn(&format!("the list ends at --limit {limit}, and there can be more items{next}"));
        }
        Ok((list, is_any))
    }

    /// Reads the list until its end or the limit. Returns whether the limit was reached before the end.
    async fn read_pages<T: DeserializeOwned>(
        &self,
        path: &str,
        filter: Filter<'_>,
        limit: Option<u32>,
        mut take: impl FnMut(Vec<T>) -> Result<()>,
    ) -> Result<bool> {
        let mut remaining = limit;
        let mut cursor: Option<String> = None;
        let mut cursors = HashSet::new();
        loop {
            let path = page_path(path, filter, page_size(remaining), cursor.as_deref());
            let page: Page<T> = self.call_path(Method::GET, &path).fetch().await?;
            if page.next_cursor.as_ref().is_some_and(|next| !cursors.insert(next.clone())) {
                return Err(
                    ErrorKind::UnexpectedResponse.with_message("the service repeats a page of the list")
                );
            }
            let count = u32::try_from(page.items.len()).unwrap_or(u32::MAX);
            remaining = remaining.map(|remaining| remaining.saturating_sub(count));
            cursor = page.next_cursor;
            take(page.items)?;
            if cursor.is_none() || remaining == Some(0) {
                return Ok(cursor.is_some());
            }
        }
    }
}

/// Lists of one tenant or of all.
pub(crate) struct TenantsApi {
    pub(crate) api: Api,
    /// The tenant that the platform token is limited to. A session belongs to one tenant.
    pub(crate) tenant: Option<TenantId>,
}

impl TenantsApi {
    /// Reads all items of the tenant.
    pub(crate) async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        let items = self.api.list(path, &[self.filter()], None).await?;
        if items.is_empty() {
            self.check_tenant().await?;
        }
        Ok(items)
    }

    /// Reads the items of the tenant that a command prints, as [`Api::print_list`].
    pub(crate) async fn print_list<T: DeserializeOwned + Row>(
        &self,
        path: &str,
        filter: Filter<'_>,
        paging: Paging,
    ) -> Result<ItemList<T>> {
        let filter = [&[self.filter()][..], filter].concat();
        let (list, is_any) = self.api.print_pages(path, &filter, paging).await?;
        if !is_any {
            self.check_tenant().await?;
        }
        Ok(list)
    }

    fn filter(&self) -> (&'static str, Option<&str>) {
        ("tenant_id", self.tenant.as_ref().map(TenantId::as_str))
    }

    /// Fails if the tenant, which has no items, does not exist.
    async fn check_tenant(&self) -> Result<()> {
        let Some(tenant) = &self.tenant else { return Ok(()) };
        match self.api.call(&routes::GET_TENANT, &[tenant]).send().await {
            Err(error) if error.code == ProblemKind::NotFound.code() => Err(error),
            _ => Ok(()),
        }
    }
}

/// Size of the next page if this number of items remains, or all.
fn page_size(remaining: Option<u32>) -> u32 {
    remaining.map_or(MAX_PAGE_SIZE, |remaining| remaining.min(MAX_PAGE_SIZE))
}

fn page_path(path: &str, filter: Filter<'_>, limit: u32, cursor: Option<&str>) -> String {
    let limit = limit.to_string();
    let paging = [("limit", Some(&*limit)), ("cursor", cursor)];
    let pairs = filter.iter().copied().chain(paging).filter_map(|(name, value)| Some((name, value?)));
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    format!("{path}?{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_contains_only_parameters_with_a_value() {
        assert_eq!(page_path("/users", &[("email", None)], 200, None), "/users?limit=200");
        let filter = [("email", Some("a+b@acme.example")), ("status", None)];
        assert_eq!(
            page_path("/users", &filter, 7, Some("a b&c")),
            "/users?email=a%2Bb%40acme.example&limit=7&cursor=a+b%26c"
        );
    }
}
