//! Verifying a certificate never panics, whatever the file says.
#![no_main]

use gossip_scanner_runtime::certificate::{Against, verify, verify_seal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let sealed = verify_seal(data, None).is_ok();
    if verify(data, Against::ITSELF).is_ok() {
        assert!(sealed, "what was verified has the right seal");
    }
});
