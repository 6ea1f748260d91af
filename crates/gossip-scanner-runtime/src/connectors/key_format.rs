//! Keys as users read and type them.

use std::borrow::Cow;

use gossip_frontier::{ColumnValue, decode_columns, encode_columns};

use super::row_keys::{ROWS_END, parse_row_key, row_key};
use super::source::END_OF_PATHS;

/// How the keys of a source family are written for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyFormat {
    /// As they are: paths.
    Bytes,
    /// As the number of the row: [`row_key`].
    Row,
    /// In hexadecimal digits: object ids.
    Hex,
    /// As the columns of a row, separated by commas: an integer in digits, a uuid with its hyphens,
    /// a text as JSON, bytes as `x'00ff'`.
    Columns,
}

impl KeyFormat {
    /// Returns the text of a key. Paths need not be UTF-8.
    #[must_use]
    pub fn text(self, key: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Bytes => Cow::Borrowed(key),
            Self::Row => match parse_row_key(key) {
                Some(row) => Cow::Owned(row.to_string().into_bytes()),
                None => Cow::Borrowed(key),
            },
            Self::Hex => {
                Cow::Owned(key.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect())
            }
            Self::Columns => match decode_columns(key) {
                Some(columns) => Cow::Owned(text_of_columns(&columns).into_bytes()),
                None => Cow::Borrowed(key),
            },
        }
    }

    /// Returns the text of a key for people. Text in UTF-8 is unchanged; a byte that is none is
    /// `\xNN`.
    #[must_use]
    pub fn readable(self, key: &[u8]) -> String {
        readable(&self.text(key))
    }

    /// Returns the text of a bound; empty if it only means that the source has no key before or
    /// after it.
    #[must_use]
    pub fn bound_text(self, bound: &[u8]) -> Cow<'_, [u8]> {
        let is_outermost = match self {
            Self::Bytes | Self::Hex | Self::Columns => bound == FIRST_PATH || bound == END_OF_PATHS,
            Self::Row => parse_row_key(bound) == Some(ROWS_END),
        };
        if is_outermost { Cow::Borrowed(b"") } else { self.text(bound) }
    }

    /// Returns the key with this text; `None` if no key has it.
    #[must_use]
    pub fn parse(self, text: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Bytes => (!text.is_empty()).then(|| text.to_vec()),
            Self::Row => {
                // The parser of the standard library would accept a plus sign.
                let is_plain = text.first().is_some_and(u8::is_ascii_digit);
                let row = std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()?;
                Some(row_key(row).to_vec())
            }
            Self::Columns => columns_of_text(text).map(|columns| encode_columns(&columns)),
            Self::Hex => bytes_of_hex(text).filter(|key| !key.is_empty()),
        }
    }
}

/// Returns bytes as text, in which a byte that is not UTF-8 is `\xNN`.
pub(super) fn readable(bytes: &[u8]) -> String {
    let mut readable = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        readable.push_str(chunk.valid());
        readable.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    readable
}

fn bytes_of_hex(text: &[u8]) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| match pair {
        [high, low] => {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
        }
        _ => None,
    };
    text.chunks(2).map(pair).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where the hyphens of a uuid are.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
/// The length of a uuid in its text.
const UUID_LEN: usize = 36;

fn text_of_columns(columns: &[ColumnValue]) -> String {
    let texts = columns.iter().map(|column| match column {
        ColumnValue::Integer(value) => value.to_string(),
        ColumnValue::Uuid(bytes) => {
            let mut text = hex(bytes);
            HYPHENS.iter().for_each(|at| text.insert(*at, '-'));
            text
        }
        ColumnValue::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => serde_json::Value::from(text).to_string(),
            // No JSON has it. Another letter than that of bytes distinguishes it.
            Err(_) => format!("t'{}'", hex(bytes)),
        },
        ColumnValue::Bytes(bytes) => format!("x'{}'", hex(bytes)),
    });
    texts.collect::<Vec<_>>().join(",")
}

fn columns_of_text(text: &[u8]) -> Option<Vec<ColumnValue>> {
    let (mut rest, mut columns) = (std::str::from_utf8(text).ok()?, Vec::new());
    loop {
        let (column, after) = first_column(rest)?;
        columns.push(column);
        match after {
            "" => return Some(columns),
            after => rest = after.strip_prefix(',')?,
        }
    }
}

/// Parses the first column of a text; returns it and the text behind it.
fn first_column(text: &str) -> Option<(ColumnValue, &str)> {
    if text.starts_with('"') {
        // By a parser that says where it stopped, because a comma may be part of the text.
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let value = values.next()?.ok()?;
        let len = values.byte_offset();
        return Some((ColumnValue::Text(value.into_bytes()), &text[len..]));
    }
    let (word, _) = text.split_at(text.find(',').unwrap_or(text.len()));
    let after = &text[word.len()..];
    let quoted = |head: &str| {
        let digits = word.strip_prefix(head)?.strip_suffix('\'')?;
        bytes_of_hex(digits.as_bytes())
    };
    if let Some(bytes) = quoted("x'") {
        return Some((ColumnValue::Bytes(bytes), after));
    }
    if let Some(bytes) = quoted("t'") {
        return Some((ColumnValue::Text(bytes), after));
    }
    if word.len() == UUID_LEN && HYPHENS.iter().all(|at| word.as_bytes()[*at] == b'-') {
        let bytes = bytes_of_hex(word.replace('-', "").as_bytes())?;
        return Some((ColumnValue::Uuid(bytes.try_into().ok()?), after));
    }
    // The parser of the standard library would accept a plus sign.
    let is_plain = !word.starts_with('+');
    Some((ColumnValue::Integer(word.parse().ok().filter(|_| is_plain)?), after))
}

/// The start of the range that contains every path.
pub(super) const FIRST_PATH: [u8; 1] = [0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_shown_as_numbers_and_paths_as_they_are() {
        assert_eq!(*KeyFormat::Row.text(&row_key(7)), *b"7");
        assert_eq!(*KeyFormat::Row.text(b"no row key"), *b"no row key");
        assert_eq!(*KeyFormat::Bytes.text(b"a/\xFF"), *b"a/\xFF");
    }

    #[test]
    fn names_that_are_not_utf8_are_distinguished() {
        assert_eq!(KeyFormat::Bytes.readable(b"a/\xFF.txt"), "a/\\xff.txt");
        assert_eq!(KeyFormat::Bytes.readable(b"a/\xFE.txt"), "a/\\xfe.txt");
        assert_eq!(KeyFormat::Bytes.readable("a\\ü".as_bytes()), "a\\ü");
        assert_eq!(KeyFormat::Row.readable(&row_key(7)), "7");
    }

    #[test]
    fn columns_are_shown_and_parsed() {
        for (columns, text) in [
            (vec![ColumnValue::Integer(-7)], "-7"),
            (vec![ColumnValue::Text("a\",b\n".into())], r#""a\",b\n""#),
            (vec![ColumnValue::Text(vec![0xFF])], "t'ff'"),
            (vec![ColumnValue::Bytes(vec![0, 0xFF])], "x'00ff'"),
            (
                vec![ColumnValue::Uuid([0xAB; 16]), ColumnValue::Text(vec![])],
                r#"abababab-abab-abab-abab-abababababab,"""#,
            ),
            (vec![ColumnValue::Integer(1), ColumnValue::Integer(2)], "1,2"),
        ] {
            let key = encode_columns(&columns);
            assert_eq!(KeyFormat::Columns.readable(&key), text);
            assert_eq!(KeyFormat::Columns.parse(text.as_bytes()), Some(key), "{text}");
        }
        for bad in ["", ",", "1,", "+1", "a", "\"a", "x'0", "1 2", "99999999999999999999"] {
            assert_eq!(KeyFormat::Columns.parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(KeyFormat::Columns.readable(b"zz"), "zz");
    }

    #[test]
    fn bounds_that_bound_no_key_have_no_text() {
        for (format, bound) in [
            (KeyFormat::Bytes, &FIRST_PATH[..]),
            (KeyFormat::Bytes, &END_OF_PATHS),
            (KeyFormat::Row, &row_key(ROWS_END)),
        ] {
            assert_eq!(*format.bound_text(bound), *b"");
        }
        assert_eq!(*KeyFormat::Row.bound_text(&row_key(0)), *b"0");
        assert_eq!(*KeyFormat::Bytes.bound_text(b"m"), *b"m");
    }

    #[test]
    fn the_text_of_a_key_is_parsed_to_that_key() {
        for row in [0, 10, ROWS_END] {
            let key = row_key(row);
            assert_eq!(KeyFormat::Row.parse(&KeyFormat::Row.text(&key)), Some(key.to_vec()));
        }
        assert_eq!(KeyFormat::Bytes.parse(b"a/b"), Some(b"a/b".to_vec()));
        let oid = b"\x00\xab\xff";
        assert_eq!(*KeyFormat::Hex.text(oid), *b"00abff");
        assert_eq!(KeyFormat::Hex.parse(b"00abff"), Some(oid.to_vec()));
        for bad in [&b""[..], b"0", b"0g", b"\xFF\xFF"] {
            assert_eq!(KeyFormat::Hex.parse(bad), None);
        }
        for bad in [&b""[..], b"+1", b"-1", b"1x", b"18446744073709551616", b"\xFF"] {
            assert_eq!(KeyFormat::Row.parse(bad), None);
        }
        assert_eq!(KeyFormat::Bytes.parse(b""), None);
    }
}
