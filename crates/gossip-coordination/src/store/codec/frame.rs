//! The frame of every value.
//!
//! ```text
//!  version  kind   payload_len   payload         checksum
//!  1 byte   1 byte 4 bytes       payload_len     8 bytes
//! ```
//!
//! The checksum is the first 8 bytes of BLAKE3, in its own domain, over the key's length and bytes,
//! version, kind, and the payload's length and bytes. It detects accidents, not forgery: a writer
//! of the store can compute a checksum.

use gossip_contracts::identity::{CanonicalHasher, Domain};

use super::fields::{Fields, corrupt};
use super::{checked, writing};
use crate::error::{InfraError, StoreRefusal};
use crate::store::key::{Key, KeyKind};

/// The newest format version that this code reads and writes.
pub const FORMAT_VERSION: u8 = 2;

/// The oldest format version that this code reads: the one before [`FORMAT_VERSION`], or the first.
pub(crate) const FORMAT_OLDEST: u8 = 2;

/// The format of a store without a schema record, and of the schema record itself in every store:
/// every program can read it.
pub(in crate::store) const FORMAT_FIRST: u8 = 2;

const _: () = assert!(FORMAT_FIRST <= FORMAT_OLDEST && FORMAT_OLDEST <= FORMAT_VERSION);
const _: () = assert!(FORMAT_VERSION <= FORMAT_OLDEST + 1, "format N reads N - 1");

/// Length of the header.
pub(in crate::store) const HEAD_LEN: usize = 1 + 1 + 4;
/// Length of the checksum.
pub(in crate::store) const CHECKSUM_LEN: usize = 8;

/// Replaces `out` by the framed value of `key`; `write` appends the payload.
pub(super) fn seal(key: &Key, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let version = version_for(key.kind());
    out.clear();
    out.extend_from_slice(&[version, key.kind() as u8, 0, 0, 0, 0]);
    write(out);
    // Written last: the payload is encoded straight into `out`, so its length is not known before.
    let payload_len = u32::try_from(out.len() - HEAD_LEN);
    let payload_len = payload_len.expect("every field is bounded, so a payload is far below 4 GiB");
    out[2..HEAD_LEN].copy_from_slice(&payload_len.to_le_bytes());
    let checksum = checksum(key, version, &out[HEAD_LEN..]);
    out.extend_from_slice(&checksum);
    // An empty payload is rarely opened, and would only evict other values from the cache.
    if payload_len > 0 {
        checked::remember_sealed(key, out);
    }
}

/// Verifies `value` under `key` and returns the fields of its payload.
pub(super) fn open<'a>(key: &Key, value: &'a [u8]) -> Result<Fields<'a>, InfraError> {
    let (payload, stored) = unframe(key.kind(), value).map_err(|error| {
        // One flipped bit in the version byte must not look like a newer program.
        match matches!(error, InfraError::Refused { .. }) {
            true => refuse_newer(key, value).err().unwrap_or_else(|| differs(key)),
            false => error,
        }
    })?;
    // Hashing dominates decoding; unchanged values were verified by this thread before.
    if !checked::is_known(key, value) {
        if stored != checksum(key, value[0], payload) {
            return Err(differs(key));
        }
        checked::remember(key, value);
    }
    writing::learn(value[0]);
    Ok(Fields::new(key.kind(), payload))
}

fn differs(key: &Key) -> InfraError {
    corrupt(key.kind(), "the checksum differs: damaged, or of another key")
}

/// As [`open`], for bytes that have not left this process since they were sealed or opened. They
/// cannot have changed, and the checksum would cost more than the rest of the decoding.
pub(super) fn open_own<'a>(key: &Key, value: &'a [u8]) -> Result<Fields<'a>, InfraError> {
    let (payload, stored) = unframe(key.kind(), value)?;
    // In debug builds only: hashing the new value is a third of a checkpoint already.
    debug_assert_eq!(stored, checksum(key, value[0], payload), "cached bytes do not change");
    Ok(Fields::new(key.kind(), payload))
}

/// As [`open`], without the checksum, for a caller that decodes the value again before any
/// decision depends on it.
pub(super) fn peek<'a>(key: &Key, value: &'a [u8]) -> Result<Fields<'a>, InfraError> {
    let (payload, _) = unframe(key.kind(), value)?;
    Ok(Fields::new(key.kind(), payload))
}

/// Returns an intact value of an older format as one of [`FORMAT_VERSION`]; `None` if it has that
/// already. New fields are optional and announced by a flag, so a payload of the format before is
/// one of this format, too.
///
/// # Errors
///
/// As [`open`].
pub(in crate::store) fn upgraded(key: &Key, value: &[u8]) -> Result<Option<Vec<u8>>, InfraError> {
    open(key, value)?;
    if value[0] == version_of(key.kind(), FORMAT_VERSION) {
        return Ok(None);
    }
    let mut out = value[..value.len() - CHECKSUM_LEN].to_vec();
    out[0] = FORMAT_VERSION;
    let checksum = checksum(key, FORMAT_VERSION, &out[HEAD_LEN..]);
    out.extend_from_slice(&checksum);
    Ok(Some(out))
}

/// Refuses an intact value of a newer format. A value that claims a newer version but has a wrong
/// checksum is damaged, not newer.
///
/// # Errors
///
/// Returns [`InfraError::Refused`], which says that the program must be upgraded.
pub(in crate::store) fn refuse_newer(key: &Key, value: &[u8]) -> Result<(), InfraError> {
    let Some((&[version, number, a, b, c, d], rest)) = value.split_first_chunk() else {
        return Ok(());
    };
    let payload_len = u64::from(u32::from_le_bytes([a, b, c, d]));
    // Every format keeps this frame, so the checksum of a newer value can be verified.
    let framed = version > FORMAT_VERSION
        && number == key.kind() as u8
        && payload_len + CHECKSUM_LEN as u64 == rest.len() as u64;
    if !framed {
        return Ok(());
    }
    let (payload, stored) = rest.split_at(rest.len() - CHECKSUM_LEN);
    if stored == checksum(key, version, payload) {
        check_version(key.kind(), version)
    } else {
        Ok(())
    }
}

/// The payload of `value`, and the checksum behind it.
fn unframe(kind: KeyKind, value: &[u8]) -> Result<(&[u8], &[u8]), InfraError> {
    let [version, number, a, b, c, d, rest @ ..] = value else {
        return Err(corrupt(kind, format_args!("cut off after {} bytes", value.len())));
    };
    // Before the length and the payload: a newer format may change what they mean.
    check_version(kind, *version)?;
    check_kind(kind, *number)?;
    let payload_len = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
    if payload_len + CHECKSUM_LEN as u64 != rest.len() as u64 {
        let left = rest.len();
        let what = format_args!("{payload_len} bytes and a checksum do not make {left} bytes");
        return Err(corrupt(kind, what));
    }
    Ok(rest.split_at(rest.len() - CHECKSUM_LEN))
}

/// Returns the version to write a value of `kind` with.
fn version_for(kind: KeyKind) -> u8 {
    version_of(kind, writing::format())
}

/// Returns `format`, except for the schema record, which has the first format in every store.
const fn version_of(kind: KeyKind, format: u8) -> u8 {
    if matches!(kind, KeyKind::SchemaVersion) { FORMAT_FIRST } else { format }
}

fn check_version(kind: KeyKind, version: u8) -> Result<(), InfraError> {
    let (oldest, newest) = (version_of(kind, FORMAT_OLDEST), version_of(kind, FORMAT_VERSION));
    if (oldest..=newest).contains(&version) {
        return Ok(());
    }
    if version < oldest {
        let what = format_args!("format {version} is older than {oldest}, the oldest that is read");
        return Err(corrupt(kind, what));
    }
    let message = format!(
        "written by a newer version (format {version}, this one reads {FORMAT_VERSION}); \
         upgrade this program"
    );
    let (operation, why) = (kind.decoding(), StoreRefusal::NewerFormat);
    Err(InfraError::Refused { operation, why, message })
}

fn check_kind(expected: KeyKind, number: u8) -> Result<(), InfraError> {
    match KeyKind::from_u8(number) {
        Some(kind) if kind == expected => Ok(()),
        Some(kind) => {
            let (found, wanted) = (kind.name(), expected.name());
            Err(corrupt(expected, format_args!("a value of kind {found} under a key of {wanted}")))
        }
        None => Err(corrupt(expected, format_args!("unknown kind {number}"))),
    }
}

fn checksum(key: &Key, version: u8, payload: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut hasher = CanonicalHasher::for_domain(Domain::RECORD_CHECKSUM_V1);
    // The key is hashed too, so an intact value under the wrong key is found.
    hasher.write_bytes_prefixed(key.to_bytes().as_bytes());
    hasher.write_u8(version);
    hasher.write_u8(key.kind() as u8);
    hasher.finalize_64_with(payload).to_le_bytes()
}

/// Returns an intact value of the next format version.
#[cfg(test)]
pub(in crate::store) fn of_next_format(key: &Key, payload: &[u8]) -> Vec<u8> {
    let mut out = reseal(key, payload);
    out[0] = FORMAT_VERSION + 1;
    let end = out.len() - CHECKSUM_LEN;
    out[end..].copy_from_slice(&checksum(key, FORMAT_VERSION + 1, payload));
    out
}

/// Returns a value with a valid checksum around any `payload`, for tests of decoders.
#[cfg(test)]
pub(in crate::store) fn reseal(key: &Key, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    seal(key, &mut out, |out| out.extend_from_slice(payload));
    out
}
