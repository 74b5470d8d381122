//! Layout of a table: aligned columns that fit the terminal.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use chrono::{DateTime, Utc};
use terminal_size::{Width, terminal_size_of};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::cell::{Cell, now, relative, timestamp};
use crate::framework::environment;

/// Spaces between columns.
const GAP: usize = 2;
/// Shortest prefix of an id. In a `UUIDv7` it is the creation time in milliseconds.
const MIN_ID: usize = 13;
/// Columns of cut text, at least.
const MIN_TEXT: usize = 10;
/// Columns of a cut name, at least.
const MIN_NAME: usize = 20;
/// Columns of a cut address, at least. One of IPv4 is not longer.
const MIN_ADDRESS: usize = 15;
/// Marks cut text.
const CUT: &str = "…";

/// Breaks lines between words, so that they have at most `width` columns unless a word is longer. Keeps indentation. Further lines
/// are indented by `indent`.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut all = String::new();
    let mut column = 0;
    for word in text.split_inclusive([' ', '\n']) {
        if column > indent && column + word.trim_end().width() > width {
            all.truncate(all.trim_end_matches(' ').len());
            all.push('\n');
            all.push_str(&" ".repeat(indent));
            column = indent;
        }
        all.push_str(word);
        column = if word.ends_with('\n') { 0 } else { column + word.width() };
    }
    all
}

/// Width of the terminal that a stream writes to; `None` if it writes to a file or pipe.
pub(super) fn width_of(stream: impl AsFd) -> Option<usize> {
    terminal_size_of(stream).map(|(Width(width), _)| usize::from(width))
}

/// How tables are shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum View {
    /// To programs: complete.
    Complete,
    /// To people: with relative times, and at most this number of columns wide.
    Fitted { width: usize, now: DateTime<Utc> },
}

impl View {
    /// View for standard output: fitted if it is a terminal, or if `COLUMNS` is set.
    pub(super) fn for_stdout() -> Self {
        let columns = environment::text("COLUMNS").and_then(|columns| columns.parse().ok());
        match columns.filter(|columns| *columns > 0).or_else(|| width_of(std::io::stdout())) {
            Some(width) => Self::Fitted { width, now: now() },
            None => Self::Complete,
        }
    }

    /// Text of a cell of a list.
    fn text(self, cell: &Cell) -> String {
        match (cell, self) {
            (
                Cell::Text(text) | Cell::Name(text) | Cell::Address(text) | Cell::Word(text) | Cell::Id(text),
                _,
            ) => text.clone(),
            (Cell::Time(time), Self::Fitted { now, .. }) => relative(time, now),
            (Cell::Time(time), Self::Complete) => timestamp(time),
        }
    }
}

/// Lines of text, broken if they are longer than a terminal.
pub(super) fn paragraphs(text: &str, indent: usize, view: View) -> String {
    match view {
        View::Complete => text.to_owned(),
        View::Fitted { width, .. } => wrapped(text, width, indent),
    }
}

/// Lines of the fields of an object. No value is cut: it may be a token.
pub(super) fn fields(fields: &[(String, Cell)], view: View) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default() + GAP;
    let line = |(name, cell): &(String, Cell)| {
        let value = match (cell, view) {
            (Cell::Time(time), View::Fitted { now, .. }) => {
                format!("{} ({})", timestamp(time), relative(time, now))
            }
            _ => view.text(cell),
        };
        format!("{name:width$}{value}\n")
    };
    fields.iter().map(line).collect()
}

/// Lines of a table with headings. Adds the headings of the columns that do not fit to `omitted`.
pub(super) fn table(headings: &[&str], rows: &[Vec<Cell>], view: View, omitted: &mut Vec<String>) -> String {
    let mut columns: Vec<Column> =
        headings.iter().enumerate().map(|(index, heading)| Column::new(heading, rows, index, view)).collect();
    if let View::Fitted { width, .. } = view {
        omitted.extend(fit(&mut columns, width));
    }
    let line = |row: usize| {
        let cells: Vec<_> = columns.iter().map(|column| column.padded(row)).collect();
        format!("{}\n", cells.join(&" ".repeat(GAP)).trim_end())
    };
    (0..=rows.len()).map(line).collect()
}

struct Column {
    /// Heading and values.
    cells: Vec<String>,
    /// Columns to which all values may be cut, if all are text.
    min_cut: Option<usize>,
    has_ids: bool,
    width: usize,
}

impl Column {
    fn new(heading: &str, rows: &[Vec<Cell>], index: usize, view: View) -> Self {
        let values = || rows.iter().filter_map(|row| row.get(index));
        let min_cut = |cell: &Cell| match cell {
            // An empty cell of a column of ids or times is text.
            Cell::Text(_) => Some(MIN_TEXT),
            Cell::Name(_) => Some(MIN_NAME),
            Cell::Address(_) => Some(MIN_ADDRESS),
            _ => None,
        };
        let min_cut = values().map(min_cut).try_fold(0, |most, min| Some(min?.max(most)));
        let has_ids = values().any(|cell| matches!(cell, Cell::Id(_)));
        let cells = std::iter::once(heading.to_owned()).chain(values().map(|cell| view.text(cell))).collect();
        let mut column = Self { cells, min_cut, has_ids, width: 0 };
        column.measure();
        column
    }

    fn measure(&mut self) {
        self.width = self.cells.iter().map(|cell| cell.width()).max().unwrap_or_default();
    }

    /// Shortens the ids to prefixes that differ.
    fn shorten_ids(&mut self) {
        let Some((_, ids)) = self.cells.split_first_mut() else { return };
        let count = ids.iter().collect::<BTreeSet<_>>().len();
        let prefix = |id: &str, length: usize| id.chars().take(length).collect::<String>();
        let is_unique =
            |length: &usize| ids.iter().map(|id| prefix(id, *length)).collect::<BTreeSet<_>>().len() == count;
        let longest = ids.iter().map(|id| id.chars().count()).max().unwrap_or_default();
        let length = (MIN_ID..longest).find(is_unique).unwrap_or(longest);
        for id in ids {
            *id = prefix(id, length);
        }
        self.measure();
    }

    /// Width below which the column is not cut. A heading is never cut.
    fn min_width(&self) -> usize {
        let heading = self.cells.first().map_or(0, |heading| heading.width());
        self.min_cut.map_or(self.width, |min| heading.max(min).min(self.width))
    }

    /// Cell of a row, cut or padded to the width.
    fn padded(&self, row: usize) -> String {
        let cell = self.cells.get(row).map_or("", String::as_str);
        let mut text = cut_to(cell, self.width);
        text.push_str(&" ".repeat(self.width.saturating_sub(text.width())));
        text
    }
}

/// Makes the table fit: shortens ids, omits columns that do not fit next to those before them, then cuts the widest texts. Returns the
/// headings of the omitted columns.
fn fit(columns: &mut Vec<Column>, width: usize) -> Vec<String> {
    if total(columns) <= width {
        return Vec::new();
    }
    columns.iter_mut().filter(|column| column.has_ids).for_each(Column::shorten_ids);
    let (mut kept, mut omitted, mut used) = (Vec::new(), Vec::new(), 0);
    for column in columns.drain(..) {
        let needed = used + column.min_width();
        if kept.len() < 2 || needed <= width {
            used = needed + GAP;
            kept.push(column);
        } else {
            omitted.extend(column.cells.into_iter().next());
        }
    }
    *columns = kept;
    cut_texts(columns, width);
    omitted
}

/// Cuts the widest texts until the table fits, as far as they may be cut.
fn cut_texts(columns: &mut [Column], width: usize) {
    while total(columns) > width {
        let wide = columns.iter_mut().filter(|column| column.width > column.min_width());
        let Some(widest) = wide.max_by_key(|column| column.width) else { return };
        widest.width -= 1;
    }
}

fn total(columns: &[Column]) -> usize {
    columns.iter().map(|column| column.width + GAP).sum::<usize>().saturating_sub(GAP)
}

/// The text if it fits into `width` columns, else its first characters and a mark.
pub(super) fn cut_to(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for character in text.graphemes(true) {
        if kept.width() + character.width() + CUT.width() > width {
            break;
        }
        kept.push_str(character);
    }
    kept + CUT
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::framework::output::cell::{id, name, text, time, word};

    fn table(headings: &[&str], rows: &[Vec<Cell>], view: View) -> String {
        super::table(headings, rows, view, &mut Vec::new())
    }

    fn fitted(width: usize) -> View {
        View::Fitted { width, now: DateTime::from_timestamp(1_770_000_000, 0).unwrap() }
    }

    fn sessions() -> Vec<Vec<Cell>> {
        let used = |seconds: i64| time(&DateTime::from_timestamp(1_770_000_000 - seconds, 0).unwrap());
        vec![
            vec![
                id("019c1373-2f00-7000-8000-000000000001"),
                text("svc/0.1.0 (山 👩‍👩‍👧 on a laptop)"),
                used(300),
            ],
            vec![id("019c1373-2f00-7000-8000-000000000002"), text("svc"), used(7_200)],
            vec![id("019c1373-3f00-7000-8000-000000000003"), text("svc"), used(7_200)],
        ]
    }

    const HEADINGS: &[&str] = &["ID", "CLIENT", "LAST USED"];

    #[test]
    fn programs_see_complete_ids_and_times() {
        let table = table(HEADINGS, &sessions()[1..2], View::Complete);
        let expected = "\
            ID                                    CLIENT  LAST USED\n\
            019c1373-2f00-7000-8000-000000000002  svc     2026-02-02T00:40:00Z\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn a_wide_terminal_shows_complete_ids() {
        assert!(table(HEADINGS, &sessions(), fitted(100)).contains("-8000-000000000003  svc"));
    }

    #[test]
    fn ids_are_shortened_to_prefixes_that_differ() {
        let different = table(HEADINGS, &sessions()[1..], fitted(40));
        assert_eq!(
            different,
            "ID             CLIENT  LAST USED\n019c1373-2f00  svc     2 h ago\n019c1373-3f00  svc     2 h ago\n"
        );
        let alike = table(HEADINGS, &sessions()[..2], fitted(60));
        assert!(alike.contains("019c1373-2f00-7000-8000-000000000001  "), "{alike}");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let table = table(HEADINGS, &sessions()[..1], fitted(43));
        assert_eq!(table.lines().last().unwrap(), "019c1373-2f00  svc/0.1.0 (山 👩‍👩‍👧…  5 min ago");
    }

    #[test]
    fn messages_are_broken_between_words() {
        assert_eq!(wrapped("one two three\n  four fives", 8, 0), "one two\nthree\n  four\nfives");
        assert_eq!(wrapped("one verylongword two", 8, 0), "one\nverylongword\ntwo");
        assert_eq!(wrapped("one two", 7, 0), "one two");
        assert_eq!(wrapped("ok: one two three", 8, 4), "ok: one\n    two\n    three");
    }

    #[test]
    fn a_column_that_does_not_fit_next_to_those_before_it_is_omitted() {
        let headings = ["ID", "CLIENT", "ADDRESS", "USED", "EXPIRES"];
        let row = vec![text("1"), text("svc"), word("2001:db8::1"), text("now"), text("later")];
        let mut omitted = Vec::new();
        let table = super::table(&headings, &[row], fitted(20), &mut omitted);
        assert_eq!(table, "ID  CLIENT  USED\n1   svc     now\n");
        assert_eq!(omitted, ["ADDRESS", "EXPIRES"]);
    }

    #[test]
    fn a_name_keeps_20_columns_before_another_column_is_shown() {
        let row = vec![word("1"), name("joerg.mueller@acme.example"), text("disabled")];
        let shown = |width| table(&["ID", "EMAIL", "STATUS"], std::slice::from_ref(&row), fitted(width));
        assert!(shown(34).ends_with("\n1   joerg.mueller@acme.…  disabled\n"), "{}", shown(34));
        assert!(shown(33).ends_with("\n1   joerg.mueller@acme.example\n"), "{}", shown(33));
    }

    proptest! {
        #[test]
        fn a_fitted_table_is_not_wider_than_the_terminal(
            width in 36_usize..120,
            names in prop::collection::vec("\\PC{0,60}", 1..5),
            at in 0_i64..4_000_000_000,
        ) {
            let at = DateTime::from_timestamp(at, 0).unwrap();
            let row = |(index, name): (usize, &String)| {
                vec![text(name), id(format!("{index:08x}-2f00-7000-8000-000000000000")), time(&at)]
            };
            let rows: Vec<_> = names.iter().enumerate().map(row).collect();
            let table = table(&["NAME", "ID", "CREATED"], &rows, fitted(width));
            for line in table.lines() {
                prop_assert!(line.width() <= width, "{line}");
            }
        }
    }
}
