//! Output for people: text, the fields of an object, or a table without borders.

use schemars::JsonSchema;
use serde::Serialize;

use super::cell::Cell;
use super::layout::{self, View};
use super::{CommandOutput, escape_lines};

/// Text for a terminal, with control characters escaped.
#[derive(Debug)]
pub(crate) enum Table {
    /// Preformatted text.
    Text(String),
    /// A sentence about what the command did.
    Message(String),
    /// Lines that are broken on a narrow terminal, with the indentation of further lines.
    Paragraphs(String, usize),
    /// Names and values.
    Fields(Vec<(String, Cell)>),
    /// Rows under headings; there is at least one.
    Rows { headings: Vec<&'static str>, rows: Vec<Vec<Cell>> },
    /// Several tables, separated by empty lines.
    Sections(Vec<Self>),
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

    /// Lines of text that are broken on a narrow terminal. Further lines are indented by `indent`.
    pub(crate) fn paragraphs(text: &str, indent: usize) -> Self {
        Self::Paragraphs(escape_lines(text), indent)
    }

    /// A sentence about what the command did. Omitted with `--quiet`.
    pub(crate) fn message(text: &str) -> Self {
        Self::Message(escape_lines(text) + "\n")
    }

    /// Fields of an object. Fields without a value are omitted.
    pub(crate) fn fields<'a>(fields: impl IntoIterator<Item = (&'a str, Option<Cell>)>) -> Self {
        Self::Fields(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    }

    /// Table of items.
    pub(crate) fn items<T: Row>(items: &[T]) -> Self {
        let Some(first) = items.first() else { return Self::message(T::EMPTY) };
        let headings = first.columns().into_iter().map(|(heading, _)| heading).collect();
        let cells = |item: &T| item.columns().into_iter().map(|(_, cell)| cell).collect();
        Self::Rows { headings, rows: items.iter().map(cells).collect() }
    }

    /// Whether this is not data.
    pub(super) const fn is_message(&self) -> bool {
        matches!(self, Self::Message(_))
    }

    /// The text. Adds the headings of columns that do not fit to `omitted`.
    pub(super) fn render(&self, view: View, omitted: &mut Vec<String>) -> String {
        match self {
            Self::Text(text) | Self::Message(text) => text.clone(),
            Self::Paragraphs(text, indent) => layout::paragraphs(text, *indent, view),
            Self::Fields(fields) => layout::fields(fields, view),
            Self::Rows { headings, rows } => layout::table(headings, rows, view, omitted),
            Self::Sections(tables) => {
                tables.iter().map(|table| table.render(view, omitted)).collect::<Vec<_>>().join("\n")
            }
        }
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
    /// Text if there are no items.
    const EMPTY: &'static str;

    /// Heading and cell of each column, the most important first: a narrow terminal shows those that fit. The headings of all items
    /// are the same.
    fn columns(&self) -> Vec<(&'static str, Cell)>;

    /// Options with which the command continues the list after this item, if it has such options.
    fn next_options(&self) -> Option<String> {
        None
    }
}

impl<T: Row> CommandOutput for ItemList<T> {
    fn table(&self) -> Table {
        Table::items(&self.items)
    }

    fn lines(&self) -> serde_json::Result<Vec<String>> {
        self.items.iter().map(serde_json::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::output::cell::text;

    #[derive(Serialize, JsonSchema)]
    struct Named(u8, &'static str);

    impl Row for Named {
        const EMPTY: &'static str = "No items.";

        fn columns(&self) -> Vec<(&'static str, Cell)> {
            vec![("ID", text(self.0)), ("NAME", text(self.1))]
        }
    }

    fn rendered(table: &Table) -> String {
        table.render(View::Complete, &mut Vec::new())
    }

    #[test]
    fn aligns_columns_and_escapes_control_characters() {
        let items = vec![Named(1, "acme"), Named(22, "\u{1b}[31mred")];
        assert_eq!(rendered(&Table::items(&items)), "ID  NAME\n1   acme\n22  \\u{1b}[31mred\n");
        assert_eq!(rendered(&Table::items::<Named>(&[])), "No items.\n");
    }

    #[test]
    fn omits_fields_without_a_value() {
        let table = Table::fields([("user", Some(text("u"))), ("key", None)]);
        assert_eq!(rendered(&table), "user  u\n");
    }

    #[test]
    fn keeps_lines_and_indentation_of_text() {
        assert_eq!(rendered(&Table::text("if x\n\tthen \u{1b}c")), "if x\n\tthen \\u{1b}c\n");
        assert_eq!(rendered(&Table::empty()), "");
    }
}
