//! Lists, page by page.

use contract::Page;
use reqwest::Method;
use serde::de::DeserializeOwned;

use super::{Api, Call};
use crate::error::Result;

/// Items asked for at once, the most that the service gives.
const LARGEST_PAGE: u32 = 200;

/// How much of a list is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The first page, as long as the service likes it.
    OnePage,
    /// This many items, or all when there are fewer.
    AtMost(u32),
    /// All of it.
    All,
}

impl Extent {
    /// How many items to ask for when there are so many already; none leaves it to the service.
    fn next_page(self, have: usize) -> Option<u32> {
        match self {
            Self::OnePage => None,
            Self::AtMost(most) => {
                Some(most.saturating_sub(u32::try_from(have).unwrap_or(u32::MAX)).min(LARGEST_PAGE))
            }
            Self::All => Some(LARGEST_PAGE),
        }
    }

    /// Whether so many items, and at least one page, are enough.
    fn is_enough(self, have: usize) -> bool {
        match self {
            Self::OnePage => true,
            Self::AtMost(most) => have >= most as usize,
            Self::All => false,
        }
    }
}

/// What was read of a list.
pub(crate) struct Part<T> {
    /// The items, in the service's order.
    pub(crate) items: Vec<T>,
    /// Whether more of them follow that nobody meant to leave out.
    pub(crate) cut: bool,
}

/// What a list is asked for: names and values, of which those without a value are left out.
type Filter<'a> = &'a [(&'static str, Option<&'a str>)];

impl Api {
    /// Every item of a list. `prepare` gives each page's call its headers.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        prepare: impl for<'a> Fn(Call<'a>) -> Result<Call<'a>>,
    ) -> Result<Vec<T>> {
        Ok(self.list_part(path, &[], Extent::All, prepare).await?.items)
    }

    /// The items of a list that pass the filter, as many as are wanted. `prepare` gives each page's call its headers.
    pub(crate) async fn list_part<T: DeserializeOwned>(
        &self,
        path: &str,
        filter: Filter<'_>,
        extent: Extent,
        prepare: impl for<'a> Fn(Call<'a>) -> Result<Call<'a>>,
    ) -> Result<Part<T>> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let url = page_url(path, filter, extent.next_page(items.len()), cursor.as_deref());
            let page: Page<T> = prepare(self.call(Method::GET, &url))?.fetch().await?;
            items.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() || extent.is_enough(items.len()) {
                let cut = cursor.is_some() && extent == Extent::OnePage;
                return Ok(Part { items, cut });
            }
        }
    }
}

fn page_url(path: &str, filter: Filter<'_>, limit: Option<u32>, cursor: Option<&str>) -> String {
    let limit = limit.map(|limit| limit.to_string());
    let paging = [("limit", limit.as_deref()), ("cursor", cursor)];
    let given = filter.iter().copied().chain(paging).filter_map(|(name, value)| Some((name, value?)));
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_is_asked_for_with_what_is_given_and_nothing_else() {
        assert_eq!(page_url("/users", &[("email", None)], None, None), "/users");
        let filter = [("email", Some("a+b@acme.example")), ("status", None)];
        assert_eq!(
            page_url("/users", &filter, Some(7), Some("a b&c")),
            "/users?email=a%2Bb%40acme.example&limit=7&cursor=a+b%26c"
        );
    }

    proptest! {
        #[test]
        fn pages_add_up_to_what_is_wanted_and_never_exceed_what_the_service_gives(most in 1_u32..5_000) {
            let extent = Extent::AtMost(most);
            let mut have = 0;
            while !extent.is_enough(have) {
                let page = extent.next_page(have).unwrap();
                prop_assert!((1..=LARGEST_PAGE).contains(&page));
                have += page as usize;
            }
            prop_assert_eq!(have, most as usize);
        }
    }
}
