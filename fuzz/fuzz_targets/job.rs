//! Decoding the job of a run never panics, and what decodes is written the same again.
#![no_main]

use gossip_scanner_runtime::Job;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(job) = Job::decode(data) else { return };
    if let Ok(again) = job.encode() {
        assert_eq!(again, data);
    }
});
