//! Checksums inside tokens: CRC-32 in base62, base36 and hexadecimal, bech32, CRC-16.

use super::{Details, Verdict};
use crate::decode;

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const BASE36: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const BECH32: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";

/// Length of the bodies over which GitHub and npm compute a checksum, checksum included.
const CRC_BODY_LEN: usize = 36;
/// Base62 digits of a CRC-32.
const BASE62_LEN: usize = 6;
/// Base36 digits of a CRC-32.
const BASE36_LEN: usize = 7;
/// Hexadecimal digits of a CRC-32.
const HEX_LEN: usize = 8;
/// Five-bit groups of a bech32 checksum.
const BECH32_LEN: usize = 6;

const fn verdict(is_equal: bool) -> Verdict {
    if is_equal { Verdict::Valid } else { Verdict::Fail }
}

/// Returns the CRC-32 of bytes in six base62 digits.
pub(crate) fn base62_crc(bytes: &[u8]) -> [u8; BASE62_LEN] {
    digits(crc32fast::hash(bytes), BASE62)
}

/// Returns the CRC-32 of bytes in seven base36 digits.
pub(crate) fn base36_crc(bytes: &[u8]) -> [u8; BASE36_LEN] {
    digits(crc32fast::hash(bytes), BASE36)
}

fn digits<const N: usize>(mut value: u32, alphabet: &[u8]) -> [u8; N] {
    let radix = alphabet.len() as u32;
    let mut text = [alphabet[0]; N];
    for digit in text.iter_mut().rev() {
        *digit = alphabet[(value % radix) as usize];
        value /= radix;
    }
    text
}

/// The last six characters of a 36-character body behind `xxx_` are the CRC of the first thirty.
pub(super) fn crc32_base62(token: &[u8], _: &mut Details) -> Verdict {
    let Some(at) = token.iter().position(|&byte| byte == b'_') else { return Verdict::Unchecked };
    let body = &token[at + 1..];
    // Older and newer tokens with this prefix have no checksum or another one.
    if body.len() != CRC_BODY_LEN {
        return Verdict::Unchecked;
    }
    let (covered, checksum) = body.split_at(CRC_BODY_LEN - BASE62_LEN);
    verdict(checksum == base62_crc(covered))
}

/// The algorithm is not confirmed on public samples, so that a mismatch proves nothing.
pub(super) fn github_fine_grained(token: &[u8], _: &mut Details) -> Verdict {
    let Some(at) = token.len().checked_sub(BASE62_LEN) else { return Verdict::Unchecked };
    let (covered, checksum) = token.split_at(at);
    // A match by chance has odds of one in four thousand million, so it does prove the token.
    if checksum == base62_crc(covered) { Verdict::Valid } else { Verdict::Unchecked }
}

/// The last seven characters are the CRC of everything before them.
pub(super) fn gitlab_routable(token: &[u8], _: &mut Details) -> Verdict {
    let Some(at) = token.len().checked_sub(BASE36_LEN) else { return Verdict::Reject };
    let (covered, checksum) = token.split_at(at);
    verdict(checksum == base36_crc(covered))
}

/// The last eight characters are the CRC of everything before them, in upper-case hexadecimal.
pub(super) fn atlassian(token: &[u8], _: &mut Details) -> Verdict {
    let Some(at) = token.len().checked_sub(HEX_LEN) else { return Verdict::Reject };
    let (covered, checksum) = token.split_at(at);
    verdict(checksum == format!("{:08X}", crc32fast::hash(covered)).as_bytes())
}

/// Checks BIP 173's checksum over prefix and data, in either case.
pub(super) fn bech32(token: &[u8], _: &mut Details) -> Verdict {
    // The last one separates: the digit is not in the alphabet of the data, but prefixes may have
    // it.
    let Some(at) = token.iter().rposition(|&byte| byte == b'1') else { return Verdict::Reject };
    let (prefix, data) = (&token[..at], &token[at + 1..]);
    let mut values = Vec::with_capacity(data.len());
    for byte in data {
        let value = BECH32.iter().position(|it| *it == byte.to_ascii_lowercase());
        let Some(value) = value else { return Verdict::Fail };
        values.push(value as u8);
    }
    verdict(values.len() >= BECH32_LEN && polymod(prefix, &values) == 1)
}

/// Returns the six checksum values of a prefix and its data values.
pub(crate) fn bech32_checksum(prefix: &[u8], values: &[u8]) -> [u8; BECH32_LEN] {
    let padded = [values, &[0; BECH32_LEN]].concat();
    let remainder = polymod(prefix, &padded) ^ 1;
    std::array::from_fn(|index| ((remainder >> (5 * (5 - index))) & 31) as u8)
}

/// Returns the bech32 characters of five-bit values.
pub(crate) fn to_bech32(values: &[u8]) -> Vec<u8> {
    values.iter().map(|value| BECH32[usize::from(value & 31)]).collect()
}

fn polymod(prefix: &[u8], values: &[u8]) -> u32 {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    // The checksum is defined over lower case, and tokens may be in upper case.
    let lower = || prefix.iter().map(|byte| byte.to_ascii_lowercase());
    let expanded = lower().map(|byte| byte >> 5).chain([0]).chain(lower().map(|byte| byte & 31));
    expanded.chain(values.iter().copied()).fold(1, |sum, value| {
        let top = sum >> 25;
        let shifted = ((sum & 0x01ff_ffff) << 5) ^ u32::from(value);
        GENERATOR.iter().zip(0..).fold(shifted, |it, (generator, bit)| {
            if (top >> bit) & 1 == 1 { it ^ generator } else { it }
        })
    })
}

/// A seed of NATS ends in the little-endian CRC-16 of the bytes before it.
pub(super) fn nkey(token: &[u8], _: &mut Details) -> Verdict {
    let Some(bytes) = decode::base32(token) else { return Verdict::Fail };
    let Some((covered, checksum)) = bytes.split_last_chunk::<2>() else { return Verdict::Reject };
    verdict(u16::from_le_bytes(*checksum) == crc16_xmodem(covered))
}

/// Returns the CRC-16/XMODEM of bytes.
pub(crate) fn crc16_xmodem(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |it, _| {
            if it & 0x8000 == 0 { it << 1 } else { (it << 1) ^ 0x1021 }
        })
    })
}
