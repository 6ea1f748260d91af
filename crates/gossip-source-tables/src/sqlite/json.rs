//! A row as JSON, as `row_to_json` of PostgreSQL writes it: bytes as `"\\x00ff"`, an infinite
//! number as text.

use rusqlite::Row;
use rusqlite::types::ValueRef;

/// Why a row has no JSON.
pub(super) enum NoJson {
    /// It is longer than the limit.
    TooLong,
    /// A text of the row is no UTF-8.
    NotText,
}

/// Returns the columns of a row from `first` on, unless they are longer than `len_max`.
pub(super) fn row_json(
    row: &Row<'_>,
    first: usize,
    names: &[String],
    len_max: usize,
) -> rusqlite::Result<Result<Vec<u8>, NoJson>> {
    let mut json = vec![b'{'];
    for (offset, name) in names.iter().enumerate() {
        if offset > 0 {
            json.push(b',');
        }
        write_text(name, &mut json);
        json.push(b':');
        let value = row.get_ref(first + offset)?;
        // Before it is written: a value may have a gigabyte, and bytes become twice as long.
        if json.len() + len_of(value) > len_max {
            return Ok(Err(NoJson::TooLong));
        }
        if !write(value, &mut json) {
            return Ok(Err(NoJson::NotText));
        }
    }
    json.push(b'}');
    Ok(if json.len() > len_max { Err(NoJson::TooLong) } else { Ok(json) })
}

fn len_of(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(text) => text.len(),
        ValueRef::Blob(bytes) => bytes.len().saturating_mul(2),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
    }
}

/// Writes a value; `false` if it is a text that is no UTF-8.
fn write(value: ValueRef<'_>, json: &mut Vec<u8>) -> bool {
    match value {
        ValueRef::Null => json.extend_from_slice(b"null"),
        ValueRef::Integer(value) => json.extend_from_slice(value.to_string().as_bytes()),
        ValueRef::Real(value) => match serde_json::Number::from_f64(value) {
            Some(number) => json.extend_from_slice(number.to_string().as_bytes()),
            None => {
                let text = if value > 0.0 { "Infinity" } else { "-Infinity" };
                write_text(text, json);
            }
        },
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => write_text(text, json),
            Err(_) => return false,
        },
        ValueRef::Blob(bytes) => {
            json.extend_from_slice(br#""\\x"#);
            for byte in bytes {
                json.extend_from_slice(format!("{byte:02x}").as_bytes());
            }
            json.push(b'"');
        }
    }
    true
}

fn write_text(text: &str, json: &mut Vec<u8>) {
    serde_json::to_writer(json, text).expect("a text is JSON, and memory takes every byte");
}
