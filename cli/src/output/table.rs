//! Aligned text without borders: rows under a heading, one thing's fields under each other, or just text.

use std::fmt;

use comfy_table::presets::NOTHING;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::text::clean_text;
use super::{Report, clean};

/// What people see. Everything in it is made safe for a terminal.
#[derive(Debug)]
pub(crate) enum Table {
    /// Text that is laid out already.
    Text(String),
    /// Cells in columns.
    Rows {
        /// What stands above the columns.
        heading: Option<Vec<String>>,
        /// The cells.
        rows: Vec<Vec<String>>,
        /// What is said when there are no rows.
        empty: &'static str,
    },
}

impl Table {
    /// Nothing at all.
    pub(crate) fn nothing() -> Self {
        Self::Text(String::new())
    }

    /// Text of any number of lines.
    pub(crate) fn of_text(text: &str) -> Self {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        Self::Text(clean_text(text) + end)
    }

    /// The fields of one thing; those without a value are left out.
    pub(crate) fn of_fields<const N: usize>(fields: [(&str, Option<String>); N]) -> Self {
        let present =
            fields.into_iter().filter_map(|(name, value)| Some(vec![name.to_owned(), clean(&value?)]));
        Self::Rows { heading: None, rows: present.collect(), empty: "" }
    }

    /// Items under a heading; `empty` is said when there are none.
    fn of_items<T: Row>(items: &[T]) -> Self {
        let rows = items.iter().map(|item| item.cells().iter().map(|cell| clean(cell)).collect());
        let heading = T::HEADING.iter().map(|&cell| cell.to_owned()).collect();
        Self::Rows { heading: Some(heading), rows: rows.collect(), empty: T::NONE }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (heading, rows) = match self {
            Self::Text(text) => return f.write_str(text),
            Self::Rows { rows, empty, .. } if rows.is_empty() => return writeln!(f, "{empty}"),
            Self::Rows { heading, rows, .. } => (heading, rows),
        };
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).force_no_tty();
        if let Some(heading) = heading {
            table.set_header(heading);
        }
        table.add_rows(rows);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        writeln!(f, "{}", table.trim_fmt())
    }
}

/// A list, whole.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Listed<T> {
    /// The items, in the service's order.
    pub(crate) items: Vec<T>,
}

/// An item of a list.
pub(crate) trait Row: Serialize + JsonSchema {
    /// What stands above the columns.
    const HEADING: &'static [&'static str];
    /// What is said when there are no items.
    const NONE: &'static str;

    /// The item's cells, one a column.
    fn cells(&self) -> Vec<String>;
}

impl<T: Row> Report for Listed<T> {
    fn table(&self) -> Table {
        Table::of_items(&self.items)
    }

    fn lines(&self) -> serde_json::Result<Vec<Value>> {
        self.items.iter().map(serde_json::to_value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, JsonSchema)]
    struct Named(u8, &'static str);

    impl Row for Named {
        const HEADING: &'static [&'static str] = &["ID", "NAME"];
        const NONE: &'static str = "Nothing.";

        fn cells(&self) -> Vec<String> {
            vec![self.0.to_string(), self.1.to_owned()]
        }
    }

    #[test]
    fn columns_are_aligned_and_hold_no_borders() {
        let items = vec![Named(1, "acme"), Named(22, "\u{1b}[31mred")];
        assert_eq!(Table::of_items(&items).to_string(), "ID  NAME\n1   acme\n22  \\u{1b}[31mred\n");
        assert_eq!(Table::of_items::<Named>(&[]).to_string(), "Nothing.\n");
    }

    #[test]
    fn fields_without_a_value_are_left_out() {
        let table = Table::of_fields([("user", Some("u".into())), ("key", None)]);
        assert_eq!(table.to_string(), "user  u\n");
    }

    #[test]
    fn text_keeps_its_lines_and_its_indentation() {
        assert_eq!(Table::of_text("if x\n\tthen \u{1b}c").to_string(), "if x\n\tthen \\u{1b}c\n");
        assert_eq!(Table::nothing().to_string(), "");
    }
}
