//! Columns of rows, and numbers of items.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use gossip_contracts::connector::{ConnectorError, MAX_INLINE_BODY_BYTES};

use super::TemplateError;
use crate::connectors::{ManifestFormat, Source, parse_row_key};

/// Names of columns in an error; more do not help to find a slip.
const KNOWN_SHOWN: usize = 12;

/// The columns of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// It has none: a name in braces is text.
    None,
    /// Of CSV, in their order.
    Csv(Vec<Vec<u8>>),
    /// Of JSON: the members of the first object of JSON Lines, or the columns of a table.
    Json(Vec<Vec<u8>>),
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// By its place.
    Csv(usize),
    /// By its name.
    Json(String),
}

impl Columns {
    /// Reads the columns of a source from the first row of its file, or asks its family.
    pub(super) fn of(source: &Source) -> Result<Self, TemplateError> {
        let (path, format) = match source {
            Source::Manifest { path, format } => (path, format),
            Source::Registered(registered) => {
                let columns = registered.columns().map_err(TemplateError::Columns)?;
                let named = columns.map(|it| it.into_iter().map(String::into_bytes).collect());
                return Ok(named.map_or(Self::None, Self::Json));
            }
            Source::Tree { .. }
            | Source::Lines { .. }
            | Source::Integers(_)
            | Source::Git { .. } => return Ok(Self::None),
        };
        match format {
            ManifestFormat::Csv { header: true } => {
                Ok(Self::Csv(fields(&first_row(path, true)?).map(Cow::into_owned).collect()))
            }
            // Without names there is nothing to refer to.
            ManifestFormat::Csv { header: false } => Ok(Self::None),
            ManifestFormat::JsonLines => {
                let row = first_row(path, false)?;
                let object: serde_json::Map<String, serde_json::Value> =
                    serde_json::from_slice(&row).unwrap_or_default();
                Ok(Self::Json(object.into_iter().map(|(name, _)| name.into_bytes()).collect()))
            }
        }
    }

    /// Returns the column with this name; `None` if the source has no columns.
    pub(super) fn named(&self, name: &[u8]) -> Result<Option<Column>, TemplateError> {
        let known = match self {
            Self::None => return Ok(None),
            Self::Csv(known) | Self::Json(known) => known,
        };
        let text = String::from_utf8_lossy(name).into_owned();
        match (known.iter().position(|column| column == name), self) {
            (Some(_), Self::Json(_)) => Ok(Some(Column::Json(text))),
            (Some(index), _) => Ok(Some(Column::Csv(index))),
            (None, _) => {
                let shown = known.iter().take(KNOWN_SHOWN).map(|it| String::from_utf8_lossy(it));
                let known = shown.collect::<Vec<_>>().join(", ");
                Err(TemplateError::NoColumn { name: text, known })
            }
        }
    }
}

impl Column {
    /// Returns the value in a row, as text: a string of JSON without quotes, anything else as it is
    /// written.
    ///
    /// Fails for a value with a zero byte, which no argument of a program can contain: in JSON it
    /// is written as `\u0000`, so the row itself has none.
    pub(super) fn of<'a>(&self, row: &'a [u8]) -> Result<Cow<'a, [u8]>, String> {
        let value = self.value_in(row)?;
        match value.contains(&0) {
            true => Err("the column has a zero byte, which no argument can contain".to_owned()),
            false => Ok(value),
        }
    }

    fn value_in<'a>(&self, row: &'a [u8]) -> Result<Cow<'a, [u8]>, String> {
        match self {
            Self::Csv(index) => fields(row)
                .nth(*index)
                .ok_or_else(|| format!("the row has no column {}", index + 1)),
            Self::Json(name) => {
                let object: serde_json::Map<String, serde_json::Value> =
                    serde_json::from_slice(row).map_err(|_| "the row is no object".to_owned())?;
                match object.get(name) {
                    Some(serde_json::Value::String(text)) => {
                        Ok(Cow::Owned(text.clone().into_bytes()))
                    }
                    Some(value) => Ok(Cow::Owned(value.to_string().into_bytes())),
                    None => Err(format!("the row has no `{name}`")),
                }
            }
        }
    }
}

/// How a source numbers its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbering {
    /// Not at all: a number would depend on the order of listing.
    None,
    /// By row.
    Rows,
    /// From this integer on, which is the first.
    From(u64),
}

impl Numbering {
    pub(super) const fn of(source: &Source) -> Self {
        match source {
            Source::Manifest { .. } => Self::Rows,
            Source::Integers(integers) => Self::From(integers.first()),
            // Lines are known by their position and paths by their name. A registered source
            // defines no order.
            Source::Tree { .. }
            | Source::Lines { .. }
            | Source::Git { .. }
            | Source::Registered(_) => Self::None,
        }
    }

    pub(super) fn number_of(self, key: &[u8]) -> u64 {
        let number = parse_row_key(key).unwrap_or(0);
        match self {
            Self::None => 0,
            Self::Rows => number,
            Self::From(first) => number.saturating_sub(first) + 1,
        }
    }
}

/// Reads the first row of a file: of CSV its header, of JSON Lines the first line.
fn first_row(path: &Path, is_csv: bool) -> Result<Vec<u8>, TemplateError> {
    let failed = |error: std::io::Error| TemplateError::Columns(ConnectorError::from_io(&error));
    let file = File::open(path).map_err(failed)?;
    let mut lines = BufReader::new(file).take(MAX_INLINE_BODY_BYTES as u64);
    let mut row = Vec::new();
    loop {
        let read = lines.read_until(b'\n', &mut row).map_err(failed)?;
        // A quoted field may contain line feeds.
        let is_open = is_csv && row.iter().filter(|byte| **byte == b'"').count() % 2 == 1;
        if read == 0 || !is_open {
            break;
        }
    }
    while row.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        row.pop();
    }
    // A byte order mark is no part of the first name.
    Ok(row.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&row).to_vec())
}

/// Splits a row of CSV into its fields, without quotes.
fn fields(row: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let mut rest = Some(row);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        if text.first() != Some(&b'"') {
            let end = memchr::memchr(b',', text);
            rest = end.map(|end| &text[end + 1..]);
            return Some(Cow::Borrowed(&text[..end.unwrap_or(text.len())]));
        }
        let (mut field, mut at) = (Vec::new(), 1);
        while let Some(byte) = text.get(at) {
            at += 1;
            if *byte != b'"' {
                field.push(*byte);
            } else if text.get(at) == Some(&b'"') {
                field.push(b'"');
                at += 1;
            } else {
                break;
            }
        }
        let tail = &text[at.min(text.len())..];
        // What follows a closing quote up to the comma belongs to the field.
        let end = memchr::memchr(b',', tail);
        field.extend_from_slice(&tail[..end.unwrap_or(tail.len())]);
        rest = end.map(|end| &tail[end + 1..]);
        Some(Cow::Owned(field))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(row: &str) -> Vec<String> {
        fields(row.as_bytes()).map(|it| String::from_utf8(it.into_owned()).unwrap()).collect()
    }

    #[test]
    fn rows_are_split_as_spreadsheets_do() {
        assert_eq!(split("a,b,c"), ["a", "b", "c"]);
        assert_eq!(split("a,,"), ["a", "", ""]);
        assert_eq!(split(""), [""]);
        assert_eq!(split("\"a,b\",\"say \"\"hi\"\"\",c"), ["a,b", "say \"hi\"", "c"]);
        assert_eq!(split("\"open"), ["open"]);
        assert_eq!(split("\"a\"b,c"), ["ab", "c"]);
    }

    #[test]
    fn members_of_objects_are_columns() {
        let column = Column::Json("url".to_owned());
        assert_eq!(*column.of(br#"{"url":"x y","n":1}"#).unwrap(), *b"x y");
        assert_eq!(*Column::Json("n".to_owned()).of(br#"{"n":[1]}"#).unwrap(), *b"[1]");
        assert!(column.of(b"[]").is_err());
        assert!(column.of(b"{}").unwrap_err().contains("url"));
    }

    #[test]
    fn a_misspelt_column_is_named_with_the_known_ones() {
        let columns = Columns::Csv(vec![b"url".to_vec(), b"size".to_vec()]);
        assert_eq!(columns.named(b"size"), Ok(Some(Column::Csv(1))));
        let error = columns.named(b"urll").unwrap_err().to_string();
        assert!(error.contains("urll") && error.contains("url, size"), "{error}");
        assert_eq!(Columns::None.named(b"x"), Ok(None));
    }
}
