//! Data on standard output: tables or JSON.
//!
//! A field may be shown differently in the two: a time is an age in a table and RFC 3339 in JSON.
//! A table on a terminal is cut to its width, unless the format is `wide`.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;

use gossip::identity::LogicalTime;
use gossip::runtime::{Clock as _, SystemClock};
use gossip::sources::KeyFormat;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::args::Format;
use crate::duration;
use crate::failure::{Code, Failure};

pub(crate) use crate::screen::text::{counted as count, number};

/// Columns between two fields of a table.
const GAP: usize = 2;

/// Digits of a whole id, and the fewest of a shortened one.
const ID_DIGITS: usize = 16;
const SHORT_ID_DIGITS: usize = 8;

/// A column is not cut below this width: fewer letters say nothing.
const COLUMN_MIN: usize = 6;

/// Named fields in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Vec<Field>);

#[derive(Clone, Debug)]
struct Field {
    name: &'static str,
    value: Value,
    /// The text in tables, if it is not that of the value.
    shown: Option<String>,
}

impl Record {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.push(Field { name, value: value.into(), shown: None });
        self
    }

    /// Adds a value that tables show as another text.
    pub(crate) fn with_shown(
        mut self,
        name: &'static str,
        value: impl Into<Value>,
        shown: impl Into<String>,
    ) -> Self {
        self.0.push(Field { name, value: value.into(), shown: Some(shown.into()) });
        self
    }

    /// Shows a field as another text in tables.
    pub(crate) fn showing(mut self, name: &str, shown: String) -> Self {
        if let Some(field) = self.0.iter_mut().find(|field| field.name == name) {
            field.shown = Some(shown);
        }
        self
    }

    /// Adds a time: its distance from now in tables, RFC 3339 in JSON.
    pub(crate) fn with_time(self, name: &'static str, time: Option<LogicalTime>) -> Self {
        match time {
            Some(time) => {
                let shown = duration::from_now(time.as_raw(), SystemClock::new().now().as_raw());
                self.with_shown(name, duration::rfc3339(time.as_raw()), shown)
            }
            None => self.with(name, Value::Null),
        }
    }

    /// Adds bytes as text, or as hexadecimal digits under the second name if they are not UTF-8.
    pub(crate) fn with_bytes(self, [plain, hex]: [&'static str; 2], bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.with(plain, text),
            Err(_) => {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                self.with(hex, digits)
            }
        }
    }

    /// Adds a bound of a range: the key like [`with_bytes`](Self::with_bytes) in JSON, and
    /// [`bound_text`] in tables; null if there is none.
    pub(crate) fn with_bound(
        self,
        names: [&'static str; 2],
        (key, bound): (&[u8], Bound),
        format: KeyFormat,
    ) -> Self {
        let text = format.bound_text(key);
        if text.is_empty() {
            return self.with(names[0], Value::Null);
        }
        let mut record = self.with_bytes(names, &text);
        if let Some(field) = record.0.last_mut() {
            field.shown = Some(bound_text(key, bound, format));
        }
        record
    }

    pub(crate) fn to_json(&self) -> Value {
        let fields = self.0.iter().map(|field| (field.name.to_owned(), field.value.clone()));
        Value::from(fields.collect::<Map<_, _>>())
    }
}

/// Which bound of a range a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Start,
    End,
}

/// Returns the text of a bound; empty if there is none. The first key behind another one is named
/// by that: `k007 (included)` as an end, `after k007` as a start.
pub(crate) fn bound_text(key: &[u8], bound: Bound, format: KeyFormat) -> String {
    let text = format.bound_text(key);
    match (text.strip_suffix(b"\0"), bound) {
        (Some(last), Bound::Start) if !last.is_empty() => {
            format!("after {}", readable(&format.text(last)))
        }
        (Some(last), Bound::End) if !last.is_empty() => {
            format!("{} (included)", readable(&format.text(last)))
        }
        (Some(_) | None, Bound::Start | Bound::End) => readable(&text),
    }
}

/// Returns the text of a range: `from a to m`.
pub(crate) fn range_text(start: &[u8], end: &[u8], format: KeyFormat) -> String {
    let (from, to) = (bound_text(start, Bound::Start, format), bound_text(end, Bound::End, format));
    match (&*from, &*to) {
        ("", "") => "all keys".to_owned(),
        ("", to) => format!("up to {to}"),
        (from, "") => format!("{} to the last key", began(from)),
        (from, to) => format!("{} to {to}", began(from)),
    }
}

/// A start that is named by the key before it has its own preposition.
fn began(from: &str) -> String {
    if from.starts_with("after ") { from.to_owned() } else { format!("from {from}") }
}

impl Field {
    /// Returns the text in a table, on one line.
    fn text(&self) -> String {
        match &self.shown {
            Some(shown) => cell(&Value::from(shown.as_str())),
            None => cell(&self.value),
        }
    }
}

/// Prints records: a table, a JSON array, or one value per line.
///
/// A column is the name of a field, or `field:heading`.
pub(crate) fn list(format: Format, columns: &[&str], records: &[Record]) -> Result<(), Failure> {
    match format {
        Format::Table => write(&table(columns, records, terminal_width())),
        Format::Wide => write(&table(columns, records, None)),
        Format::Json | Format::Sarif => {
            let array: Vec<_> = records.iter().map(Record::to_json).collect();
            write(&format!("{:#}\n", Value::from(array)))
        }
        Format::Jsonl => {
            let lines = records.iter().map(|record| format!("{}\n", record.to_json()));
            write(&lines.collect::<String>())
        }
    }
}

/// As [`list`], and in a table the lines of `details` below each record, indented.
pub(crate) fn list_with_details(
    format: Format,
    columns: &[&str],
    records: &[Record],
    details: &[Vec<String>],
) -> Result<(), Failure> {
    if !format.is_table() {
        return list(format, columns, records);
    }
    let width = terminal_width().filter(|_| !format.is_wide());
    let table = table(columns, records, width);
    let mut lines = table.lines();
    let mut text = String::new();
    // The first line is the header, which has no details.
    text.extend(lines.next().map(|header| format!("{header}\n")));
    for (line, details) in lines.zip(details) {
        text.push_str(line);
        text.push('\n');
        text.extend(details.iter().map(|detail| format!("    {detail}\n")));
    }
    write(&text)
}

/// Prints one record: a field per line, or a JSON value.
pub(crate) fn one(format: Format, record: &Record) -> Result<(), Failure> {
    match format {
        Format::Table | Format::Wide => {
            let width = record.0.iter().map(|field| field.name.len()).max().unwrap_or(0);
            let line = |field: &Field| format!("{:width$}  {}\n", field.name, field.text());
            write(&record.0.iter().map(line).collect::<String>())
        }
        Format::Json | Format::Sarif => write(&format!("{:#}\n", record.to_json())),
        Format::Jsonl => write(&format!("{}\n", record.to_json())),
    }
}

/// Prints one record, of which the table format shows one field only.
pub(crate) fn field(format: Format, field: &str, record: &Record) -> Result<(), Failure> {
    let found = record.0.iter().find(|found| found.name == field);
    match found.filter(|_| format.is_table()) {
        Some(found) => write(&format!("{}\n", found.text())),
        None => one(format, record),
    }
}

/// Returns the width of the terminal on standard output, if it is one.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    let width = usize::from(size.ws_col);
    // A serial line reports a width of zero.
    (io::stdout().is_terminal() && width > 0).then_some(width)
}

/// Formats a table of at most `max_width` columns, if that is possible with columns of
/// [`COLUMN_MIN`].
fn table(columns: &[&str], records: &[Record], max_width: Option<usize>) -> String {
    let fields: Vec<(&str, &str)> =
        columns.iter().map(|column| column.split_once(':').unwrap_or((column, column))).collect();
    let header = fields.iter().map(|(_, head)| head.to_uppercase().replace('_', " ")).collect();
    let text_of = |record: &Record, name: &str| {
        // Bytes that are not UTF-8 have a field of their own name.
        let is_named =
            |field: &&Field| field.name == name || field.name.strip_suffix("_hex") == Some(name);
        record.0.iter().find(is_named).map_or_else(|| "-".to_owned(), Field::text)
    };
    let mut rows: Vec<Vec<String>> = vec![header];
    rows.extend(
        records.iter().map(|record| fields.iter().map(|(name, _)| text_of(record, name)).collect()),
    );
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns.len()).map(|column| width(column).unwrap_or(0)).collect();
    let gaps = GAP * widths.len().saturating_sub(1);
    let widths = match max_width.filter(|max| widths.iter().sum::<usize>() + gaps > *max) {
        Some(max) => {
            let shortest = shorten_ids(&mut rows);
            let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
            let widths = (0..columns.len()).map(|column| width(column).unwrap_or(0));
            narrowed(&widths.collect::<Vec<_>>(), &shortest, max)
        }
        None => widths,
    };
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let cell = cut(cell, *width);
            format!("{cell:width$}")
        });
        text.push_str(cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end());
        text.push('\n');
    }
    text
}

/// Shortens the columns of ids to the first digits, by which commands find them. Returns the width
/// below which each column is not cut. The first row is the header.
fn shorten_ids(rows: &mut [Vec<String>]) -> Vec<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    let mut shortest = vec![COLUMN_MIN; columns];
    for (column, shortest) in shortest.iter_mut().enumerate() {
        let cells = || rows.iter().skip(1).map(|row| &*row[column]).filter(|cell| *cell != "-");
        if cells().next().is_none() || !cells().all(is_id) {
            continue;
        }
        let ids: BTreeSet<&str> = cells().collect();
        let is_unique = |digits: &usize| {
            ids.iter().map(|id| &id[..*digits]).collect::<BTreeSet<_>>().len() == ids.len()
        };
        let digits = (SHORT_ID_DIGITS..ID_DIGITS).find(is_unique).unwrap_or(ID_DIGITS);
        rows.iter_mut().skip(1).for_each(|row| row[column].truncate(digits));
        *shortest = digits;
    }
    shortest
}

/// Returns whether a text is a whole id.
fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Narrows the widest columns, the last of them first, until the table has `max` columns.
fn narrowed(widths: &[usize], shortest: &[usize], max: usize) -> Vec<usize> {
    let mut widths = widths.to_vec();
    let gaps = GAP * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > max {
        let cut = widths.iter_mut().zip(shortest).filter(|(width, shortest)| **width > **shortest);
        // `max_by_key` returns the last of equal ones.
        match cut.max_by_key(|(width, _)| **width) {
            Some((width, _)) => *width -= 1,
            // A table that cannot fit is printed too wide: the terminal wraps it, and nothing is
            // lost.
            None => break,
        }
    }
    widths
}

/// Cuts a text to a width; an ellipsis replaces the rest.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// Formats a value for a table, on one line.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.chars().flat_map(visible).collect(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Returns bytes as text for people, on one line: control characters and bytes that are no UTF-8
/// are escaped.
pub(crate) fn readable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.extend(chunk.valid().chars().flat_map(visible));
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// Escapes characters that would break the table or deceive the reader of a terminal: controls,
/// and those that change the direction of text.
fn visible(letter: char) -> Vec<char> {
    let turns = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}');
    match letter.is_control() || turns {
        true => letter.escape_default().collect(),
        false => vec![letter],
    }
}

pub(crate) fn write(text: &str) -> Result<(), Failure> {
    bytes(text.as_bytes())
}

/// Prints bytes.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    match write_to(&io::stdout(), bytes) {
        // The reader has closed the pipe, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            Err(Failure::new(Code::Internal, "cannot write to standard output").why(error))
        }
        Ok(()) => Ok(()),
    }
}

/// Writes all bytes, without a buffer.
///
/// A descriptor is shared with the processes that inherited it, and one of them may have made it
/// non-blocking: then it is waited for as if it were not.
pub(crate) fn write_to(output: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(output, bytes) {
            // A pipe takes what fits, which may be a part.
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(output, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [Record; 2] {
        let row =
            |name: &str, command: &str| Record::new().with("name", name).with("command", command);
        [row("nightly", "sh -c 'wc -l \"$1\"' sh {}"), row("0123456789abcdef", "true")]
    }

    #[test]
    fn tables_are_cut_to_the_terminal() {
        let columns = ["name", "command"];
        for max in [20, 30, 40, 80] {
            let text = table(&columns, &rows(), Some(max));
            assert!(text.lines().all(|line| line.chars().count() <= max), "{text}");
        }
        assert!(table(&columns, &rows(), Some(30)).contains('…'));
        assert!(!table(&columns, &rows(), Some(80)).contains('…'));
        assert!(!table(&columns, &rows(), None).contains('…'));
        // No column disappears.
        let narrow = table(&columns, &rows(), Some(1));
        assert!(narrow.lines().all(|line| line.split_whitespace().count() >= 2), "{narrow}");
    }

    /// An id that is cut at an ellipsis cannot be copied into a command.
    #[test]
    fn ids_are_shortened_to_digits_that_a_command_accepts() {
        let row = |run: &str, to: &str| {
            let text = "a text that is cut first, since it is the widest";
            Record::new().with("run", run).with("to", to).with("why", text)
        };
        let rows = [
            row("35c94d9c12345678", "0123456789abcdef"),
            row("35c94d9c22345678", "0123456789abcdef"),
        ];
        let columns = ["run", "to", "why"];
        assert!(table(&columns, &rows, Some(120)).contains("35c94d9c12345678"));
        for max in [30, 40, 50] {
            let text = table(&columns, &rows, Some(max));
            assert!(text.lines().all(|line| line.chars().count() <= max), "{text}");
            let ids = |line: &str| line.split_whitespace().take(2).map(str::to_owned).collect();
            let found: Vec<Vec<String>> = text.lines().skip(1).map(ids).collect();
            assert_eq!(found, [["35c94d9c1", "01234567"], ["35c94d9c2", "01234567"]], "{text}");
        }
    }

    #[test]
    fn times_are_ages_in_tables_and_dates_in_json() {
        let now = SystemClock::new().now();
        let before = LogicalTime::from_raw(now.as_raw() - 180_000);
        let record = Record::new().with_time("created_at", Some(before)).with_time("ended", None);
        let text = table(&["created_at", "ended"], std::slice::from_ref(&record), None);
        assert!(text.contains("\n3 min ago   -\n"), "{text}");
        let json = record.to_json();
        assert!(json["created_at"].as_str().unwrap().ends_with('Z'));
        assert_eq!(json["ended"], Value::Null);
    }

    #[test]
    fn bounds_are_named_by_keys_that_exist() {
        use gossip::sources::row_key;
        let text = |key: &[u8], bound| bound_text(key, bound, KeyFormat::Bytes);
        assert_eq!(text(b"k007\0", Bound::End), "k007 (included)");
        assert_eq!(text(b"k007\0", Bound::Start), "after k007");
        assert_eq!(text(b"m", Bound::End), "m");
        assert_eq!(text(&[0], Bound::Start), "");
        assert_eq!(text(&[0xFF; 256], Bound::End), "");
        let behind = [&row_key(5)[..], b"\0"].concat();
        assert_eq!(bound_text(&behind, Bound::End, KeyFormat::Row), "5 (included)");
        let range = |start: &[u8], end: &[u8]| range_text(start, end, KeyFormat::Bytes);
        assert_eq!(range(b"a", b"m\0"), "from a to m (included)");
        assert_eq!(range(b"a\0", &[0xFF; 256]), "after a to the last key");
        assert_eq!(range(&[0], b"m"), "up to m");
    }
}
