//! Tokens that are documents: JSON, JWT, PEM, ASCII armor.

use serde_json::Value;

use super::{Details, Verdict};
use crate::decode;

/// Least number of characters of the payload of a JSON Web Token: `{"a":1}` has ten.
const JWT_PAYLOAD_MIN: usize = 8;
/// Least number of characters of its signature; shorter ones are abbreviated for readers.
const JWT_SIGNATURE_MIN: usize = 10;
/// Least number of base64 characters of a key in ASCII armor.
const ARMOR_LEN_MIN: usize = 64;

/// The body behind the prefix is base64 of a JSON object.
pub(super) fn json(secret: &[u8], _: &mut Details) -> Verdict {
    // Every JSON object that begins with a key is `eyJ` in base64.
    let Some(start) = secret.windows(3).position(|it| it == b"eyJ") else {
        return Verdict::Reject;
    };
    match object(&secret[start..]) {
        Some(_) => Verdict::Valid,
        None => Verdict::Reject,
    }
}

/// A header with an algorithm and a payload, both JSON objects.
pub(super) fn jwt(secret: &[u8], details: &mut Details) -> Verdict {
    let mut parts = secret.split(|byte| *byte == b'.');
    let [header, payload, signature] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    // Encrypted tokens continue with other parts, of which the third is as long as a signature.
    if payload.len() < JWT_PAYLOAD_MIN || signature.len() < JWT_SIGNATURE_MIN {
        return Verdict::Reject;
    }
    let Some(header) = object(header) else { return Verdict::Reject };
    if header.get("alg").is_none_or(|it| !it.is_string()) {
        return Verdict::Reject;
    }
    // Encrypted tokens have five parts, and the second is a key.
    let is_encrypted = header.get("enc").is_some();
    match object(payload) {
        Some(payload) => {
            if let Some(exp) = payload.get("exp").and_then(Value::as_u64) {
                details.push(("exp", exp.to_string()));
            }
            Verdict::Valid
        }
        None if is_encrypted => Verdict::Unchecked,
        None => Verdict::Fail,
    }
}

/// A JSON object that begins with `iat`, between two underscores.
pub(super) fn sentry(secret: &[u8], _: &mut Details) -> Verdict {
    let mut parts = secret.split(|byte| *byte == b'_').skip(1);
    match parts.next().and_then(object) {
        Some(fields) if fields.get("iat").is_some() => Verdict::Valid,
        _ => Verdict::Reject,
    }
}

fn object(text: &[u8]) -> Option<Value> {
    let text = text.strip_suffix(b"=").unwrap_or(text);
    let decoded = decode::base64_span(text).bytes;
    serde_json::from_slice(&decoded).ok().filter(Value::is_object)
}

/// Base64 between the lines, which begins a DER sequence or is a key file of OpenSSH.
pub(super) fn pem(secret: &[u8], details: &mut Details) -> Verdict {
    let Some(body) = body_between_lines(secret) else { return Verdict::Reject };
    let is_encrypted = contains(secret, b"ENCRYPTED");
    if is_encrypted {
        details.push(("encrypted", "true".to_owned()));
    }
    let (body, has_headers) = without_headers(body);
    let Some(bytes) = decode::base64_lines(body) else { return Verdict::Reject };
    match bytes.as_slice() {
        [b'o', b'p', b'e', b'n', b's', b's', b'h', b'-', ..] => Verdict::Valid,
        [0x30, rest @ ..] if der_len_fits(rest) => Verdict::Valid,
        // A sequence of another length is a key that was cut or made up for an example.
        [0x30, _, ..] => Verdict::Fail,
        // The ciphertext of a legacy key has no structure.
        [_, ..] if has_headers && is_encrypted => Verdict::Unchecked,
        _ => Verdict::Reject,
    }
}

/// Enough base64 between the lines.
pub(super) fn armor(secret: &[u8], _: &mut Details) -> Verdict {
    let characters = secret.iter().filter(|byte| decode::base64_value(**byte).is_some()).count();
    if characters >= ARMOR_LEN_MIN * 2 { Verdict::Unchecked } else { Verdict::Reject }
}

/// The text between the end of the first line and the start of the last.
fn body_between_lines(secret: &[u8]) -> Option<&[u8]> {
    let dashes: Vec<usize> = memchr::memmem::find_iter(secret, b"-----").collect();
    match dashes.as_slice() {
        [_, start, .., end, _] => secret.get(start + 5..*end),
        _ => None,
    }
}

/// Skips `Name: value` lines; the flag says whether there were any.
fn without_headers(body: &[u8]) -> (&[u8], bool) {
    // The last colon ends the headers, because base64 has none.
    let Some(colon) = body.iter().rposition(|&byte| byte == b':') else { return (body, false) };
    let rest = &body[colon..];
    let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\\')).unwrap_or(rest.len());
    (&rest[end..], true)
}

/// Returns whether a DER length, and the bytes it announces, are what follows.
fn der_len_fits(bytes: &[u8]) -> bool {
    match bytes {
        [short @ ..=0x7f, rest @ ..] => rest.len() == usize::from(*short),
        [0x81, len, rest @ ..] => rest.len() == usize::from(*len),
        [0x82, high, low, rest @ ..] => {
            rest.len() == usize::from(u16::from_be_bytes([*high, *low]))
        }
        _ => false,
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(haystack, needle).is_some()
}
