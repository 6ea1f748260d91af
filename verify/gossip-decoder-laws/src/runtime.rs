//! Decoders of the runtime: certificates, jobs, cursor tokens, row keys.

use gossip_scanner_runtime::certificate::{Against, verify, verify_seal};
use gossip_scanner_runtime::connectors::{parse_row_key, row_key as key_of};
use gossip_scanner_runtime::{Job, RuntimeToken};

/// Verifying a certificate never panics, whatever the file says.
pub(crate) fn certificate(data: &[u8]) -> bool {
    let sealed = verify_seal(data, None).is_ok();
    let verified = verify(data, Against::ITSELF).is_ok();
    assert!(sealed || !verified, "a verified certificate has a valid seal");
    verified
}

/// Decoding the job of a run never panics, and what decodes is written the same again.
pub(crate) fn job(data: &[u8]) -> bool {
    let Ok(job) = Job::decode(data) else { return false };
    assert_eq!(job.encode().expect("a decoded value can be encoded"), data);
    true
}

/// Decoding the token of a cursor, with its accumulator, never panics, and what decodes is written
/// the same again.
pub(crate) fn token(data: &[u8]) -> bool {
    let Ok(token) = RuntimeToken::decode(data) else { return false };
    let mut again = Vec::new();
    token.encode_into(&mut again).expect("a decoded value can be encoded");
    assert_eq!(again, data);
    true
}

/// Reading the key of a row never panics, and a row has one key.
pub(crate) fn row_key(data: &[u8]) -> bool {
    let Some(row) = parse_row_key(data) else { return false };
    assert_eq!(key_of(row).as_slice(), data);
    true
}
