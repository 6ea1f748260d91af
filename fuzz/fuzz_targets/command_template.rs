//! Reading a command line never panics, and every key of a batch is in its arguments.
#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use gossip_scanner_runtime::exec::Template;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let words = data.split(|byte| *byte == 0);
    let words: Vec<OsString> = words.map(|word| OsString::from_vec(word.to_vec())).collect();
    let Ok(template) = Template::parse(&words) else { return };
    let filled = template.arguments(&[b"key"]);
    let has_key = |word: &OsString| word.as_encoded_bytes().windows(3).any(|part| part == b"key");
    assert!(filled.iter().any(has_key), "the key is in no argument");
});
