//! What the runtime reads back: certificates, jobs, tokens of cursors, keys of numbers.

use gossip_scanner_runtime::certificate::{Against, verify, verify_seal};
use gossip_scanner_runtime::connectors::{number_key as key_of, parse_number_key};
use gossip_scanner_runtime::{Job, RuntimeToken};

/// Verifying a certificate never panics, whatever the file says.
pub(crate) fn certificate(data: &[u8]) {
    let sealed = verify_seal(data, None).is_ok();
    if verify(data, Against::ITSELF).is_ok() {
        assert!(sealed, "what was verified has the right seal");
    }
}

/// Decoding the job of a run never panics, and what decodes is written the same again.
pub(crate) fn job(data: &[u8]) {
    let Ok(job) = Job::decode(data) else { return };
    if let Ok(again) = job.encode() {
        assert_eq!(again, data);
    }
}

/// Decoding the token of a cursor, with its accumulator, never panics, and what decodes is written
/// the same again.
pub(crate) fn token(data: &[u8]) {
    let Ok(token) = RuntimeToken::decode(data) else { return };
    let mut again = Vec::new();
    token.encode_into(&mut again).expect("what was read can be written");
    assert_eq!(again, data);
}

/// Reading the key of a number never panics, and a number has one key.
pub(crate) fn number_key(data: &[u8]) {
    if let Some(number) = parse_number_key(data) {
        assert_eq!(key_of(number).as_slice(), data);
    }
}
