//! Keys of table rows: the values of one or more columns as bytes that sort like the columns.
//!
//! ```text
//!  kind of column │ bytes
//!  ───────────────┼──────────────────────────────────────────────────────────────────────
//!  integer        │ 0x10, then the value with its sign bit flipped, 8 bytes big-endian
//!  uuid           │ 0x20, then its 16 bytes
//!  text           │ 0x30, then its bytes with 0x00 written as 0x00 0xFF, then 0x00 0x01
//!  bytes          │ 0x40, then as text
//! ```
//!
//! A key is the encodings of its columns, one after another. No encoding is a prefix of another one
//! of the same kind, so two keys whose columns have the same kinds compare like their columns from
//! left to right: integers by value, everything else by bytes (the collation `C` of SQL).
//!
//! Ranges of shards may end at any bytes. [`column_bound`] returns the columns at which such bytes
//! lie, as a condition that a database can answer from an index.
//!
//! The first byte of a column states its kind, so a key can be decoded, and shown, without the
//! table ([`decode_columns`]).

/// The kind of a column. All keys of a table have the same kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a table with another kind of key is refused")]
pub enum ColumnKind {
    /// Signed, up to 64 bits.
    Integer,
    /// 16 bytes.
    Uuid,
    /// Text in the order of its bytes.
    Text,
    /// Bytes.
    Bytes,
}

impl ColumnKind {
    const fn tag(self) -> u8 {
        match self {
            Self::Integer => 0x10,
            Self::Uuid => 0x20,
            Self::Text => 0x30,
            Self::Bytes => 0x40,
        }
    }

    const fn of_tag(tag: u8) -> Option<Self> {
        match tag {
            0x10 => Some(Self::Integer),
            0x20 => Some(Self::Uuid),
            0x30 => Some(Self::Text),
            0x40 => Some(Self::Bytes),
            _ => None,
        }
    }
}

/// The value of one column of a key.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "one for each kind")]
pub enum ColumnValue {
    /// An integer.
    Integer(i64),
    /// A uuid.
    Uuid([u8; 16]),
    /// The bytes of a text. They need not be UTF-8: a bound may lie within a character.
    Text(Vec<u8>),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl ColumnValue {
    /// Returns its kind.
    #[must_use]
    pub const fn kind(&self) -> ColumnKind {
        match self {
            Self::Integer(_) => ColumnKind::Integer,
            Self::Uuid(_) => ColumnKind::Uuid,
            Self::Text(_) => ColumnKind::Text,
            Self::Bytes(_) => ColumnKind::Bytes,
        }
    }

    /// Appends the encoding of this column to `key`.
    pub fn encode_into(&self, key: &mut Vec<u8>) {
        // The tag makes a key readable without its table, and separates columns of different kinds
        // in the order.
        key.push(self.kind().tag());
        match self {
            Self::Integer(value) => key.extend_from_slice(&flip_sign(*value).to_be_bytes()),
            Self::Uuid(bytes) => key.extend_from_slice(bytes),
            Self::Text(bytes) | Self::Bytes(bytes) => {
                for byte in bytes {
                    key.push(*byte);
                    // Only zero needs an escape: it is the byte that can begin the end of a
                    // column.
                    if *byte == 0 {
                        key.push(ESCAPED_ZERO);
                    }
                }
                key.extend_from_slice(&[0, TERMINATOR]);
            }
        }
    }
}

// The kind and the length: keys are user data.
impl std::fmt::Debug for ColumnValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(_) => f.write_str("Integer"),
            Self::Uuid(_) => f.write_str("Uuid"),
            Self::Text(bytes) => write!(f, "Text({} bytes)", bytes.len()),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
        }
    }
}

/// Follows a zero byte that is content. Greater than [`TERMINATOR`], so that a text sorts before
/// the same text with a zero byte behind it.
const ESCAPED_ZERO: u8 = 0xFF;
/// Follows the zero byte that ends a column.
const TERMINATOR: u8 = 0x01;

/// Returns the key of these columns.
#[must_use]
pub fn encode_columns(values: &[ColumnValue]) -> Vec<u8> {
    let mut key = Vec::new();
    for value in values {
        value.encode_into(&mut key);
    }
    key
}

/// Returns the columns of a key; `None` if the bytes are no key.
#[must_use]
pub fn decode_columns(key: &[u8]) -> Option<Vec<ColumnValue>> {
    let (mut rest, mut values) = (key, Vec::new());
    while let Some((tag, after)) = rest.split_first() {
        // A part of a column is a bound and never a key, so it is not shown as one.
        let Parsed::Whole(value, behind) = parse(ColumnKind::of_tag(*tag)?, after) else {
            return None;
        };
        values.push(value);
        rest = behind;
    }
    (!values.is_empty()).then_some(values)
}

/// A place in the order of keys, as a condition on the leading columns of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a condition has no third part")]
pub struct ColumnBound {
    /// Values of the leading columns: at most as many as the key has. Without any, every row is
    /// equal to them.
    pub values: Vec<ColumnValue>,
    /// Whether rows whose leading columns are equal to the values lie before the place.
    pub is_after: bool,
}

/// Returns the place of arbitrary bytes among keys of these kinds: a row lies at or behind it
/// exactly if its key is at or above `bytes`.
///
/// A row lies at or behind the place if its leading columns are greater than the values, or equal
/// to them unless [`ColumnBound::is_after`] is set.
#[must_use]
pub fn column_bound(kinds: &[ColumnKind], bytes: &[u8]) -> ColumnBound {
    let (mut rest, mut values) = (bytes, Vec::with_capacity(kinds.len()));
    for kind in kinds {
        let Some((tag, after)) = rest.split_first() else {
            return ColumnBound { values, is_after: false };
        };
        // Another kind of column: every key with these values is on the same side of the bytes.
        if *tag != kind.tag() {
            return ColumnBound { values, is_after: kind.tag() < *tag };
        }
        match parse(*kind, after) {
            Parsed::Whole(value, behind) => {
                values.push(value);
                rest = behind;
            }
            Parsed::Part(value, is_after) => {
                values.push(value);
                return ColumnBound { values, is_after };
            }
        }
    }
    // Bytes behind a whole key: above that key, and below every greater one.
    ColumnBound { values, is_after: !rest.is_empty() }
}

/// What the beginning of some bytes is.
enum Parsed<'a> {
    /// A column, and the bytes behind it.
    Whole(ColumnValue, &'a [u8]),
    /// No column. Columns at or above the value, or above it if the flag is set, are those whose
    /// encoding is above the bytes.
    Part(ColumnValue, bool),
}

/// Parses the bytes behind the tag of a column.
fn parse(kind: ColumnKind, bytes: &[u8]) -> Parsed<'_> {
    match kind {
        ColumnKind::Integer => {
            fixed::<8>(bytes, |raw| ColumnValue::Integer(unflip_sign(u64::from_be_bytes(raw))))
        }
        ColumnKind::Uuid => fixed::<16>(bytes, ColumnValue::Uuid),
        ColumnKind::Text => escaped(bytes, ColumnValue::Text),
        ColumnKind::Bytes => escaped(bytes, ColumnValue::Bytes),
    }
}

fn fixed<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> ColumnValue) -> Parsed<'_> {
    if let Some((raw, behind)) = bytes.split_first_chunk::<N>() {
        return Parsed::Whole(value(*raw), behind);
    }
    // The first value whose bytes begin with these.
    let mut raw = [0; N];
    raw[..bytes.len()].copy_from_slice(bytes);
    Parsed::Part(value(raw), false)
}

fn escaped(bytes: &[u8], value: impl Fn(Vec<u8>) -> ColumnValue) -> Parsed<'_> {
    let mut content = Vec::new();
    let mut rest = bytes;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != 0 {
            content.push(*byte);
            continue;
        }
        match rest.split_first() {
            Some((&ESCAPED_ZERO, after)) => {
                content.push(0);
                rest = after;
            }
            Some((&TERMINATOR, after)) => return Parsed::Whole(value(content), after),
            // Between the end of this content and the same content with a zero byte behind it.
            Some((byte, _)) => return Parsed::Part(value(content), TERMINATOR < *byte),
            None => break,
        }
    }
    Parsed::Part(value(content), false)
}

const fn flip_sign(value: i64) -> u64 {
    value.cast_unsigned() ^ (1 << 63)
}

const fn unflip_sign(raw: u64) -> i64 {
    (raw ^ (1 << 63)).cast_signed()
}

/// Returns the first text at or above `bytes`, in the order of bytes, that is UTF-8 without a zero
/// byte, as databases store it; `None` if there is none.
#[must_use]
pub fn text_at_or_above(bytes: &[u8]) -> Option<String> {
    let zero = bytes.iter().position(|byte| *byte == 0);
    rounded_up(bytes, zero.unwrap_or(bytes.len()))
}

/// Returns the first text at or above `bytes`, in the order of bytes, that is UTF-8, as object
/// stores have it: zero bytes are part of it; `None` if there is none.
#[must_use]
pub fn utf8_at_or_above(bytes: &[u8]) -> Option<String> {
    rounded_up(bytes, bytes.len())
}

/// Returns the first text at or above `bytes` whose beginning of `valid_len_max` bytes, or as much
/// of it as is UTF-8, is kept, and in which no zero byte follows.
fn rounded_up(bytes: &[u8], valid_len_max: usize) -> Option<String> {
    let valid_len = match std::str::from_utf8(&bytes[..valid_len_max]) {
        Ok(text) => text.len(),
        Err(error) => error.valid_up_to(),
    };
    let (valid, rest) = bytes.split_at(valid_len);
    let mut text = String::from_utf8(valid.to_vec()).expect("cut at the end of valid text");
    if rest.is_empty() {
        return Some(text);
    }
    // The bytes behind the valid text are no character, so one that is at or above them takes
    // their place.
    if let Some(next) = char_at_or_above(rest) {
        text.push(next);
        return Some(text);
    }
    // No text that begins so is above the bytes: the next greater beginning.
    while let Some(last) = text.pop() {
        if let Some(next) = char_after(last) {
            text.push(next);
            return Some(text);
        }
    }
    None
}

/// Returns the first character, other than zero, whose bytes are at or above `bytes`. UTF-8 keeps
/// the order of characters.
fn char_at_or_above(bytes: &[u8]) -> Option<char> {
    let is_below = |character: char| {
        let mut buffer = [0; 4];
        (*character.encode_utf8(&mut buffer)).as_bytes() < bytes
    };
    let (mut low, mut high) = (1, u32::from(char::MAX) + 1);
    while low < high {
        let middle = low.midpoint(high);
        // A surrogate is no character; the one behind them all has its place.
        let character = char::from_u32(middle).unwrap_or('\u{E000}');
        if is_below(character) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    match low > u32::from(char::MAX) {
        true => None,
        false => Some(char::from_u32(low).unwrap_or('\u{E000}')),
    }
}

fn char_after(character: char) -> Option<char> {
    match character {
        // Surrogates lie in between and are no characters.
        '\u{D7FF}' => Some('\u{E000}'),
        char::MAX => None,
        other => char::from_u32(u32::from(other) + 1),
    }
}

#[cfg(test)]
#[path = "column_keys_tests.rs"]
mod tests;
