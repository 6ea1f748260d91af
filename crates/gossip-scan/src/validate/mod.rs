//! Offline validators: checks that need nothing but the bytes of a token.
//!
//! A validator never uses a network, a clock or a key. A token whose checksum is wrong is still
//! reported, with lower confidence: most public examples fail their own checksum. Only a token that
//! cannot be what its rule describes is rejected.

mod checksum;
mod documents;
mod encoded;

pub(crate) use checksum::{base36_crc, base62_crc, bech32_checksum, crc16_xmodem, to_bech32};

/// What a validator found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The token proves itself.
    Valid,
    /// The token has the right shape and a wrong checksum.
    Fail,
    /// Nothing can be proven offline.
    Unchecked,
    /// Not a token of this kind.
    Reject,
}

/// Facts read from a token, as name and value. Values are never secret.
pub(crate) type Details = Vec<(&'static str, String)>;

/// A validator.
pub(crate) type Validator = fn(&[u8], &mut Details) -> Verdict;

/// Every validator with the name that rules use.
const VALIDATORS: [(&str, Validator); 23] = [
    ("none", |_, _| Verdict::Unchecked),
    ("crc32-base62", checksum::crc32_base62),
    ("github-fine-grained", checksum::github_fine_grained),
    ("gitlab-routable", checksum::gitlab_routable),
    ("atlassian", checksum::atlassian),
    ("bech32", checksum::bech32),
    ("nkey", checksum::nkey),
    ("base32", encoded::base32),
    ("base64", encoded::base64),
    ("base64-text", encoded::base64_text),
    ("aws-key-id", encoded::aws_key_id),
    ("aws-secret", encoded::aws_secret),
    ("pypi", encoded::pypi),
    ("jfrog-reference", encoded::jfrog_reference),
    ("snowflake", encoded::snowflake),
    ("bytes-32", |secret, _| encoded::decodes_to(secret, 32)),
    ("bytes-64", |secret, _| encoded::decodes_to(secret, 64)),
    ("basic-auth", encoded::basic_auth),
    ("json", documents::json),
    ("jwt", documents::jwt),
    ("sentry", documents::sentry),
    ("pem", documents::pem),
    ("armor", documents::armor),
];

/// Returns the validator with this name.
pub(crate) fn by_name(name: &str) -> Option<Validator> {
    VALIDATORS.iter().find(|(known, _)| *known == name).map(|(_, validator)| *validator)
}
