//! How much of a list a command reads.

use clap::Args;

use crate::api::Extent;

/// Options of the commands that list what may be long.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Paging {
    /// List this many at most [default: one page, with a warning when there are more].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// List all of them, page by page.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

impl From<Paging> for Extent {
    fn from(paging: Paging) -> Self {
        match paging.limit {
            Some(limit) => Self::AtMost(limit),
            None if paging.all => Self::All,
            None => Self::OnePage,
        }
    }
}
