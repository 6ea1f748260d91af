//! Data on standard output: tables for people, JSON for programs.

use std::io::{self, Write as _};

use serde_json::{Map, Value};

use crate::args::Format;
use crate::failure::{Code, Failure};

/// A number of things, in words.
pub(crate) fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// One thing with named fields, in their order.
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

    /// Bytes as text if they are some, and otherwise as digits under the other name.
    pub(crate) fn with_bytes(self, [plain, hex]: [&'static str; 2], bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.with(plain, text),
            Err(_) => {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                self.with(hex, digits)
            }
        }
    }

    fn to_json(&self) -> Value {
        let fields = self.0.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        Value::from(fields.collect::<Map<_, _>>())
    }
}

/// Writes records: a table, an array, or a value a line.
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

/// Writes one record: a field a line, or a value.
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

/// Writes one record of which people want one field, by itself on a line.
pub(crate) fn named(format: Format, field: &str, record: &Record) -> Result<(), Failure> {
    let found = record.0.iter().find(|(name, _)| *name == field);
    match (format, found) {
        (Format::Table, Some((_, value))) => write(&format!("{}\n", cell(value))),
        (Format::Table | Format::Json | Format::Jsonl, _) => one(format, record),
    }
}

fn table(columns: &[&str], records: &[Record]) -> String {
    let header = columns.iter().map(|name| name.to_uppercase().replace('_', " ")).collect();
    let field = |record: &Record, name: &str| {
        let found = record.0.iter().find(|(field, _)| *field == name);
        found.map_or_else(|| "-".to_owned(), |(_, value)| cell(value))
    };
    let mut rows: Vec<Vec<String>> = vec![header];
    rows.extend(
        records.iter().map(|record| columns.iter().map(|name| field(record, name)).collect()),
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

/// A value in a table: on one line, whatever it holds.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.chars().flat_map(visible).collect(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Control characters would break the table, or the terminal.
fn visible(letter: char) -> Vec<char> {
    if letter.is_control() { letter.escape_default().collect() } else { vec![letter] }
}

fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // Whoever read has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            Err(Failure::new(Code::Internal, "standard output cannot be written").why(error))
        }
        Ok(()) => Ok(()),
    }
}
