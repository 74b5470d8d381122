//! Pagination of lists: `limit` (default 50, at most 200) and an opaque `cursor`.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Query};
use contract::{Page, PageQuery, ProblemKind};
use http::request::Parts;

use super::problem::Problem;

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 200;

/// Requested page. The cursor is the key of the last item of the previous page.
#[derive(Clone, Debug)]
pub struct Paging<K> {
    /// List the items after this key.
    pub after: Option<K>,
    limit: u32,
}

impl<K: FromStr, S: Send + Sync> FromRequestParts<S> for Paging<K> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let invalid = |name: &str, message: String| {
            Problem::new(ProblemKind::ValidationFailed).detail(format!("The parameter {name} {message}."))
        };
        let Query(PageQuery { limit, cursor }) =
            Query::try_from_uri(&parts.uri).map_err(|_| invalid("limit", "must be a number".to_owned()))?;
        let limit = limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(invalid("limit", format!("must be 1 to {MAX_LIMIT}")));
        }
        let after = cursor.map(|text| text.parse()).transpose();
        let after = after
            .map_err(|_| invalid("cursor", "must be a `next_cursor` of an earlier response".to_owned()))?;
        Ok(Self { after, limit })
    }
}

impl<K: Display> Paging<K> {
    /// Returns the number of rows to read: one more than the page, to detect a next page.
    pub fn rows(&self) -> i64 {
        i64::from(self.limit) + 1
    }

    /// Creates the page from the rows.
    pub fn page<T>(&self, mut items: Vec<T>, key: impl Fn(&T) -> K) -> Page<T> {
        let limit = self.limit as usize;
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| more).map(|item| key(item).to_string());
        Page { items, next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    async fn paging(uri: &str) -> Result<Paging<u32>, Problem> {
        let mut parts = Request::builder().uri(uri).body(()).unwrap().into_parts().0;
        Paging::from_request_parts(&mut parts, &()).await
    }

    #[tokio::test]
    async fn only_a_page_with_a_successor_has_a_next_cursor() {
        let two = paging("/x?limit=2").await.unwrap();
        assert_eq!(two.rows(), 3);
        assert_eq!(two.page(vec![1, 2, 3], |i| *i).next_cursor.as_deref(), Some("2"));
        assert_eq!(two.page(vec![1, 2], |i| *i).next_cursor, None);
        assert_eq!(paging("/x?cursor=2").await.unwrap().after, Some(2));
    }

    #[tokio::test]
    async fn rejects_invalid_parameters() {
        for uri in ["/x?limit=0", "/x?limit=201", "/x?limit=many", "/x?cursor=abc"] {
            assert_eq!(paging(uri).await.unwrap_err().kind(), ProblemKind::ValidationFailed, "{uri}");
        }
    }
}
