//! Tokens that decode to something recognisable.

use super::{Details, Verdict};
use crate::{decode, entropy};

/// Least entropy of an AWS secret key: forty characters of base64 hardly ever have less.
const AWS_SECRET_MILLIBITS_MIN: u32 = 4_000;
/// AWS account ids have twelve digits.
const AWS_ACCOUNT_END: u64 = 1_000_000_000_000;

/// Letters and digits of base32, with at least one of each: a word of letters is no token.
pub(super) fn base32(secret: &[u8], _: &mut Details) -> Verdict {
    let has_digit = secret.iter().any(u8::is_ascii_digit);
    let has_letter = secret.iter().any(u8::is_ascii_alphabetic);
    if has_digit && has_letter { Verdict::Unchecked } else { Verdict::Reject }
}

/// The part behind the last prefix separator decodes as base64.
pub(super) fn base64(secret: &[u8], _: &mut Details) -> Verdict {
    let is_body = |byte: &u8| decode::base64_value(*byte).is_some() || *byte == b'=';
    let start = secret.iter().rposition(|byte| !is_body(byte)).map_or(0, |at| at + 1);
    let decodes = decode::base64(&secret[start..]).is_some();
    if decodes { Verdict::Unchecked } else { Verdict::Reject }
}

/// Decodes to text, or to bytes that are searched for other secrets only.
pub(super) fn base64_text(secret: &[u8], _: &mut Details) -> Verdict {
    match decode::base64(secret) {
        // Random text of the right length also decodes, but hardly ever to printable characters.
        Some(bytes) if !bytes.is_empty() && is_printable(&bytes) => Verdict::Unchecked,
        _ => Verdict::Reject,
    }
}

/// Decodes, percent escapes first, to exactly this many bytes.
pub(super) fn decodes_to(secret: &[u8], len: usize) -> Verdict {
    let plain = decode::percent_span(secret).bytes;
    match decode::base64(&plain) {
        Some(bytes) if bytes.len() == len => Verdict::Unchecked,
        _ => Verdict::Reject,
    }
}

/// Ids of the newer generation carry the number of their account.
pub(super) fn aws_key_id(secret: &[u8], details: &mut Details) -> Verdict {
    let body = secret.get(4..).and_then(decode::base32);
    let Some([a, b, c, d, e, f, ..]) = body.as_deref() else { return Verdict::Reject };
    let value = u64::from_be_bytes([0, 0, *a, *b, *c, *d, *e, *f]);
    // Ids of the older generation have this bit clear, and no account in them.
    if value >> 47 == 0 {
        return Verdict::Unchecked;
    }
    let account = (value & 0x7fff_ffff_ff80) >> 7;
    if account >= AWS_ACCOUNT_END {
        return Verdict::Fail;
    }
    details.push(("aws_account", format!("{account:012}")));
    Verdict::Unchecked
}

/// Forty mixed characters that are no hexadecimal hash.
pub(super) fn aws_secret(secret: &[u8], _: &mut Details) -> Verdict {
    let has = |class: fn(&u8) -> bool| secret.iter().any(class);
    let is_mixed =
        has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_digit);
    // Forty hexadecimal digits are the hash of a Git commit.
    let is_hex = secret.iter().all(u8::is_ascii_hexdigit);
    let is_random = entropy::millibits(secret) >= AWS_SECRET_MILLIBITS_MIN;
    if is_mixed && !is_hex && is_random { Verdict::Unchecked } else { Verdict::Reject }
}

/// A macaroon of version 2 whose location is the package index.
pub(super) fn pypi(secret: &[u8], _: &mut Details) -> Verdict {
    let body = secret.strip_prefix(b"pypi-").unwrap_or(secret);
    let decoded = decode::base64_span(body).bytes;
    match decoded.as_slice() {
        // The hosts are `pypi.org` and `test.pypi.org`, of which the length alone is compared.
        [2, 1, 8, rest @ ..] if rest.get(8) == Some(&2) => Verdict::Valid,
        [2, 1, 13, rest @ ..] if rest.get(13) == Some(&2) => Verdict::Valid,
        _ => Verdict::Fail,
    }
}

/// A reference token is base64 of text that begins with its kind.
pub(super) fn jfrog_reference(secret: &[u8], _: &mut Details) -> Verdict {
    let decoded = decode::base64_span(secret).bytes;
    if decoded.starts_with(b"reftkn:") { Verdict::Valid } else { Verdict::Reject }
}

/// The first part of a Discord token is the decimal id of its account.
pub(super) fn snowflake(secret: &[u8], _: &mut Details) -> Verdict {
    let first = secret.split(|byte| *byte == b'.').next().unwrap_or_default();
    match decode::base64(first) {
        Some(id) if id.len() >= 17 && id.iter().all(u8::is_ascii_digit) => Verdict::Valid,
        _ => Verdict::Reject,
    }
}

/// Decodes to a printable user and password.
pub(super) fn basic_auth(secret: &[u8], _: &mut Details) -> Verdict {
    let Some(bytes) = decode::base64(secret) else { return Verdict::Reject };
    let colon = bytes.iter().position(|&byte| byte == b':');
    let has_password = colon.is_some_and(|at| bytes.len() > at + 3);
    if has_password && is_printable(&bytes) { Verdict::Valid } else { Verdict::Reject }
}

fn is_printable(bytes: &[u8]) -> bool {
    let is_text = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t');
    bytes.iter().all(|&byte| is_text(byte))
}
