//! Output for people: text, the fields of an object, or a table without borders.

use std::fmt;

use comfy_table::presets::NOTHING;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::escape_lines;
use super::{CommandOutput, escape};

/// Text for a terminal, with control characters escaped.
#[derive(Debug)]
pub(crate) enum Table {
    /// Preformatted text.
    Text(String),
    Rows {
        /// Column headings, if any.
        headings: Option<Vec<String>>,
        rows: Vec<Vec<String>>,
        /// Text if there are no rows.
        empty: &'static str,
    },
}

impl Table {
    /// No output.
    pub(crate) fn empty() -> Self {
        Self::Text(String::new())
    }

    /// Text of any number of lines.
    pub(crate) fn text(text: &str) -> Self {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        Self::Text(escape_lines(text) + end)
    }

    /// Fields of an object. Fields without a value are omitted.
    pub(crate) fn fields<const N: usize>(fields: [(&str, Option<String>); N]) -> Self {
        let present =
            fields.into_iter().filter_map(|(name, value)| Some(vec![name.to_owned(), escape(&value?)]));
        Self::Rows { headings: None, rows: present.collect(), empty: "" }
    }

    /// Table of items.
    pub(crate) fn items<T: Row>(items: &[T]) -> Self {
        let rows = items.iter().map(|item| item.cells().iter().map(|cell| escape(cell)).collect());
        let headings = T::HEADINGS.iter().map(|&cell| cell.to_owned()).collect();
        Self::Rows { headings: Some(headings), rows: rows.collect(), empty: T::EMPTY }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (headings, rows) = match self {
            Self::Text(text) => return f.write_str(text),
            Self::Rows { rows, empty, .. } if rows.is_empty() => return writeln!(f, "{empty}"),
            Self::Rows { headings, rows, .. } => (headings, rows),
        };
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).force_no_tty();
        if let Some(headings) = headings {
            table.set_header(headings);
        }
        table.add_rows(rows);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        writeln!(f, "{}", table.trim_fmt())
    }
}

/// A list of items.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ItemList<T> {
    /// Items in the order of the service.
    pub(crate) items: Vec<T>,
}

/// An item of a list.
pub(crate) trait Row: Serialize + JsonSchema {
    /// Column headings.
    const HEADINGS: &'static [&'static str];
    /// Text if there are no items.
    const EMPTY: &'static str;

    /// Cells of the item, one per column.
    fn cells(&self) -> Vec<String>;
}

impl<T: Row> CommandOutput for ItemList<T> {
    fn table(&self) -> Table {
        Table::items(&self.items)
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
        const HEADINGS: &'static [&'static str] = &["ID", "NAME"];
        const EMPTY: &'static str = "No items.";

        fn cells(&self) -> Vec<String> {
            vec![self.0.to_string(), self.1.to_owned()]
        }
    }

    #[test]
    fn aligns_columns_and_escapes_control_characters() {
        let items = vec![Named(1, "acme"), Named(22, "\u{1b}[31mred")];
        assert_eq!(Table::items(&items).to_string(), "ID  NAME\n1   acme\n22  \\u{1b}[31mred\n");
        assert_eq!(Table::items::<Named>(&[]).to_string(), "No items.\n");
    }

    #[test]
    fn omits_fields_without_a_value() {
        let table = Table::fields([("user", Some("u".into())), ("key", None)]);
        assert_eq!(table.to_string(), "user  u\n");
    }

    #[test]
    fn keeps_lines_and_indentation_of_text() {
        assert_eq!(Table::text("if x\n\tthen \u{1b}c").to_string(), "if x\n\tthen \\u{1b}c\n");
        assert_eq!(Table::empty().to_string(), "");
    }
}
