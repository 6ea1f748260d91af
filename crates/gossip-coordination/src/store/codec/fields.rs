//! Named fields of a payload: written by encoders, read by decoders.
//!
//! Numbers are little-endian and of fixed width; byte strings follow a separate length field. Both
//! sides pass the field's name: a decoder's error names the field, and the test of the format
//! document sees which bytes an encoder wrote under which name.

use crate::error::InfraError;
use crate::store::key::KeyKind;

/// The destination of a payload: a buffer, or in tests a list of named fields.
pub(in crate::store) trait Put {
    /// Writes the bytes of a field.
    fn put(&mut self, field: &'static str, bytes: &[u8]);

    fn put_u8(&mut self, field: &'static str, number: u8) {
        self.put(field, &[number]);
    }

    fn put_u16(&mut self, field: &'static str, number: u16) {
        self.put(field, &number.to_le_bytes());
    }

    fn put_u32(&mut self, field: &'static str, number: u32) {
        self.put(field, &number.to_le_bytes());
    }

    fn put_u64(&mut self, field: &'static str, number: u64) {
        self.put(field, &number.to_le_bytes());
    }

    /// Writes adjacent fields of fixed width, given by name and width.
    fn put_array<const N: usize>(&mut self, fields: &[(&'static str, usize)], bytes: &[u8; N]) {
        let mut rest = bytes.as_slice();
        for (field, width) in fields {
            let (bytes, tail) = rest.split_at(*width);
            self.put(field, bytes);
            rest = tail;
        }
        assert!(rest.is_empty(), "every byte has a name");
    }

    /// Writes a length or a count whose bound is known to fit.
    fn put_len(&mut self, field: &'static str, len: usize) {
        self.put_u16(field, u16::try_from(len).expect("every bound on a length fits in u16"));
    }
}

impl Put for Vec<u8> {
    #[inline]
    fn put(&mut self, _field: &'static str, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    // A buffer ignores the names, and one copy is twice as fast as one per field.
    #[inline]
    fn put_array<const N: usize>(&mut self, _fields: &[(&'static str, usize)], bytes: &[u8; N]) {
        self.extend_from_slice(bytes);
    }
}

/// The fields of a payload that are not read yet.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    kind: KeyKind,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) const fn new(kind: KeyKind, payload: &'a [u8]) -> Self {
        Self { kind, rest: payload }
    }

    /// Reads `len` bytes. The length may be untrusted: it is compared before use.
    #[inline]
    pub(super) fn bytes(
        &mut self,
        field: &'static str,
        len: usize,
    ) -> Result<&'a [u8], InfraError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.cut_off(field, len));
        };
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads the next `N` bytes with `of`. If it returns `None`, or the bytes are missing, nothing
    /// is consumed.
    #[inline]
    pub(super) fn take_if<const N: usize, T>(
        &mut self,
        of: impl FnOnce(&[u8; N]) -> Option<T>,
    ) -> Option<T> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        let taken = of(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    /// Returns the unread bytes.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads all remaining bytes, if they are at most `max`.
    pub(super) fn remaining(
        &mut self,
        field: &'static str,
        max: usize,
    ) -> Result<&'a [u8], InfraError> {
        // No field gives this length, so it is bounded here as the others are.
        let len = self.bounded(field, self.rest.len(), max)?;
        self.bytes(field, len)
    }

    #[inline]
    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, InfraError> {
        self.array(field).map(u8::from_le_bytes)
    }

    #[inline]
    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, InfraError> {
        self.array(field).map(u16::from_le_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, InfraError> {
        self.array(field).map(u32::from_le_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, InfraError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// Reads a number that is never zero: a hash, or the time of an event.
    #[inline]
    pub(super) fn nonzero_u64(&mut self, field: &'static str) -> Result<u64, InfraError> {
        match self.u64(field)? {
            // No encoder writes zero here, so it is damage and not an absent value.
            0 => Err(self.refuse(field, "zero")),
            number => Ok(number),
        }
    }

    /// Reads a length or a count of at most `max`.
    #[inline]
    pub(super) fn len(&mut self, field: &'static str, max: usize) -> Result<usize, InfraError> {
        let len = usize::from(self.u16(field)?);
        self.bounded(field, len, max)
    }

    /// Reads a count of at most `max`, in one byte.
    #[inline]
    pub(super) fn count_u8(
        &mut self,
        field: &'static str,
        max: usize,
    ) -> Result<usize, InfraError> {
        let count = usize::from(self.u8(field)?);
        self.bounded(field, count, max)
    }

    /// Reads one byte and converts it with `of`.
    #[inline]
    pub(super) fn number<T>(
        &mut self,
        field: &'static str,
        of: impl FnOnce(u8) -> Option<T>,
    ) -> Result<T, InfraError> {
        // An unknown number is damage or from a newer program: a default would change its meaning.
        let number = self.u8(field)?;
        of(number).ok_or_else(|| self.refuse(field, format_args!("unknown number {number}")))
    }

    /// Reads one byte of flags, of which only those in `known` may be set.
    #[inline]
    pub(super) fn flags(&mut self, field: &'static str, known: u8) -> Result<Flags, InfraError> {
        let flags = self.u8(field)?;
        // An unknown flag announces a field that would be read as the next one.
        match flags & !known {
            0 => Ok(Flags(flags)),
            unknown => Err(self.refuse(field, format_args!("unknown flags {unknown:#04x}"))),
        }
    }

    /// Checks that no bytes follow the last field.
    pub(super) fn finish(self) -> Result<(), InfraError> {
        // Trailing bytes mean that encoder and decoder disagree about the fields before them.
        match self.rest.len() {
            0 => Ok(()),
            left => Err(corrupt(self.kind, format_args!("{left} bytes behind the last field"))),
        }
    }

    /// Returns the error for an invalid field.
    pub(super) fn refuse(&self, field: &'static str, what: impl std::fmt::Display) -> InfraError {
        // The name of the field and not its bytes, which may be a key or a token of a tenant.
        corrupt(self.kind, format_args!("{field}: {what}"))
    }

    /// Converts a broken invariant into an error.
    pub(super) fn require(&self, checked: Result<(), &'static str>) -> Result<(), InfraError> {
        checked.map_err(|broken| corrupt(self.kind, broken))
    }

    #[cold]
    fn cut_off(&self, field: &'static str, len: usize) -> InfraError {
        let left = self.rest.len();
        self.refuse(field, format_args!("{left} of {len} bytes are there"))
    }

    #[inline]
    pub(super) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], InfraError> {
        let bytes = self.bytes(field, N)?;
        Ok(bytes.try_into().expect("`bytes` returns `N` bytes"))
    }

    fn bounded(&self, field: &'static str, len: usize, max: usize) -> Result<usize, InfraError> {
        // Before the caller allocates or multiplies: a damaged length may be any number.
        if len > max {
            return Err(self.refuse(field, format_args!("{len} is above the limit of {max}")));
        }
        Ok(len)
    }
}

/// The flags of the optional fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flags(u8);

impl Flags {
    /// Reads an optional field if its flag is set.
    pub(super) fn optional<T>(
        self,
        flag: u8,
        read: impl FnOnce() -> Result<T, InfraError>,
    ) -> Result<Option<T>, InfraError> {
        self.has(flag).then(read).transpose()
    }

    pub(super) const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// Returns `flag` if the field is present, or zero.
pub(super) const fn flag_if(present: bool, flag: u8) -> u8 {
    if present { flag } else { 0 }
}

/// Returns the error for a value that differs from every value that an encoder writes.
#[cold]
pub(super) fn corrupt(kind: KeyKind, what: impl std::fmt::Display) -> InfraError {
    InfraError::Corruption { operation: kind.decoding(), message: what.to_string() }
}
