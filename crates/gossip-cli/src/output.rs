//! Data on standard output: tables or JSON.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::args::Format;
use crate::failure::{Code, Failure};

/// Formats a number with its noun: `1 key`, `2 keys`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Named fields in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Vec<(&'static str, Value)>);

impl Record {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.push((name, value.into()));
        self
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

    /// Adds a bound of a range like [`with_bytes`](Self::with_bytes); null if it is empty, which
    /// means that there is none.
    pub(crate) fn with_bound(self, names: [&'static str; 2], bound: &[u8]) -> Self {
        if bound.is_empty() {
            self.with(names[0], Value::Null)
        } else {
            self.with_bytes(names, bound)
        }
    }

    fn to_json(&self) -> Value {
        let fields = self.0.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        Value::from(fields.collect::<Map<_, _>>())
    }
}

/// Prints records: a table, a JSON array, or one value per line.
pub(crate) fn list(format: Format, columns: &[&str], records: &[Record]) -> Result<(), Failure> {
    match format {
        Format::Table => write(&table(columns, records)),
        Format::Json => {
            let array: Vec<_> = records.iter().map(Record::to_json).collect();
            write(&format!("{:#}\n", Value::from(array)))
        }
        Format::Jsonl => {
            let lines = records.iter().map(|record| format!("{}\n", record.to_json()));
            write(&lines.collect::<String>())
        }
    }
}

/// Prints one record: a field per line, or a JSON value.
pub(crate) fn one(format: Format, record: &Record) -> Result<(), Failure> {
    match format {
        Format::Table => {
            let width = record.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            let line = |(name, value): &(&str, Value)| format!("{name:width$}  {}\n", cell(value));
            write(&record.0.iter().map(line).collect::<String>())
        }
        Format::Json => write(&format!("{:#}\n", record.to_json())),
        Format::Jsonl => write(&format!("{}\n", record.to_json())),
    }
}

/// Prints one record, of which the table format shows one field only.
pub(crate) fn field(format: Format, field: &str, record: &Record) -> Result<(), Failure> {
    let found = record.0.iter().find(|(name, _)| *name == field);
    match (format, found) {
        (Format::Table, Some((_, value))) => write(&format!("{}\n", cell(value))),
        (Format::Table | Format::Json | Format::Jsonl, _) => one(format, record),
    }
}

fn table(columns: &[&str], records: &[Record]) -> String {
    let header = columns.iter().map(|name| name.to_uppercase().replace('_', " ")).collect();
    let text_of = |record: &Record, name: &str| {
        // Bytes that are not UTF-8 have a field of their own name.
        let is_named = |field: &str| field == name || field.strip_suffix("_hex") == Some(name);
        let found = record.0.iter().find(|(field, _)| is_named(field));
        found.map_or_else(|| "-".to_owned(), |(_, value)| cell(value))
    };
    let mut rows: Vec<Vec<String>> = vec![header];
    rows.extend(
        records.iter().map(|record| columns.iter().map(|name| text_of(record, name)).collect()),
    );
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
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

/// Escapes control characters, which would break the table or the terminal.
fn visible(letter: char) -> Vec<char> {
    if letter.is_control() { letter.escape_default().collect() } else { vec![letter] }
}

fn write(text: &str) -> Result<(), Failure> {
    match write_to(&io::stdout(), text.as_bytes()) {
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
