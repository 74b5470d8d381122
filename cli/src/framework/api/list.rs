//! Lists, read page by page.

use clap::Args;
use contract::Page;
use reqwest::Method;
use serde::de::DeserializeOwned;

use super::Api;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::ItemList;

/// Largest page of the service.
const MAX_PAGE_SIZE: u32 = 200;

/// How many items to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListLimit {
    /// One page of the service's default size.
    OnePage,
    AtMost(u32),
    All,
}

/// Options of commands that print long lists.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Paging {
    /// Maximum number of items [default: one page].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// List all items.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

impl From<Paging> for ListLimit {
    fn from(paging: Paging) -> Self {
        match paging.limit {
            Some(limit) => Self::AtMost(limit),
            None if paging.all => Self::All,
            None => Self::OnePage,
        }
    }
}

impl ListLimit {
    /// Size of the next page after `count` items; `None` is the service's default.
    fn next_page_size(self, count: usize) -> Option<u32> {
        match self {
            Self::OnePage => None,
            Self::AtMost(most) => {
                Some(most.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX)).min(MAX_PAGE_SIZE))
            }
            Self::All => Some(MAX_PAGE_SIZE),
        }
    }

    /// Returns whether `count` items, and at least one page, are enough.
    fn is_reached(self, count: usize) -> bool {
        match self {
            Self::OnePage => true,
            Self::AtMost(most) => count >= most as usize,
            Self::All => false,
        }
    }
}

/// Query parameters; those without a value are omitted.
type Filter<'a> = &'a [(&'static str, Option<&'a str>)];

impl Api {
    /// Reads all items of the list at a path.
    pub(crate) async fn list_all<T: DeserializeOwned>(&self, path: &str) -> Result<ItemList<T>> {
        self.list(path, &[], ListLimit::All).await
    }

    /// Reads the items of the list at a path that match the filter, up to a limit. Warns if there are more than one page and no limit
    /// was set.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        filter: Filter<'_>,
        limit: impl Into<ListLimit>,
    ) -> Result<ItemList<T>> {
        let limit = limit.into();
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let path = page_path(path, filter, limit.next_page_size(items.len()), cursor.as_deref());
            let page: Page<T> = self.call_path(Method::GET, &path).fetch().await?;
            items.extend(page.items);
            if page.next_cursor.is_some() && page.next_cursor == cursor {
                return Err(
                    ErrorKind::UnexpectedResponse.with_message("the service repeats a page of the list")
                );
            }
            cursor = page.next_cursor;
            if cursor.is_none() || limit.is_reached(items.len()) {
                if cursor.is_some() && limit == ListLimit::OnePage {
                    let count = items.len();
                    self.out
                        .warn(&format!("only the first {count} items are listed; pass --all to list all"));
                }
                return Ok(ItemList { items });
            }
        }
    }
}

fn page_path(path: &str, filter: Filter<'_>, limit: Option<u32>, cursor: Option<&str>) -> String {
    let limit = limit.map(|limit| limit.to_string());
    let paging = [("limit", limit.as_deref()), ("cursor", cursor)];
    let pairs = filter.iter().copied().chain(paging).filter_map(|(name, value)| Some((name, value?)));
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn query_contains_only_parameters_with_a_value() {
        assert_eq!(page_path("/users", &[("email", None)], None, None), "/users");
        let filter = [("email", Some("a+b@acme.example")), ("status", None)];
        assert_eq!(
            page_path("/users", &filter, Some(7), Some("a b&c")),
            "/users?email=a%2Bb%40acme.example&limit=7&cursor=a+b%26c"
        );
    }

    proptest! {
        #[test]
        fn page_sizes_add_up_to_the_limit(most in 1_u32..5_000) {
            let limit = ListLimit::AtMost(most);
            let mut count = 0;
            while !limit.is_reached(count) {
                let page = limit.next_page_size(count).unwrap();
                prop_assert!((1..=MAX_PAGE_SIZE).contains(&page));
                count += page as usize;
            }
            prop_assert_eq!(count, most as usize);
        }
    }
}
