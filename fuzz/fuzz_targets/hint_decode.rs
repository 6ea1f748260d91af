//! Decoding a hint never panics, and gives back exactly the bytes it consumed.
#![no_main]

use gossip_frontier::hint::{MetadataBuf, ShardHint};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok((hint, consumed)) = ShardHint::decode(data) else {
        return;
    };
    assert!(consumed <= data.len(), "consumed more than there was");
    let frame = &data[..consumed];
    // Trailing bytes are none of its business.
    assert_eq!(ShardHint::decode(frame), Ok((hint, consumed)));
    // Every proper prefix of a frame is cut short, so no frame is the beginning of another.
    assert!(ShardHint::decode(&frame[..consumed - 1]).is_err());

    let mut buf = MetadataBuf::new();
    // A prefix may decode and yet be larger than metadata may be; then it cannot be encoded.
    let Ok(encoded) = hint.encode_into(&mut buf) else {
        assert!(consumed > MetadataBuf::CAPACITY, "a small hint was refused");
        return;
    };
    assert_eq!(encoded, frame, "the encoding is not canonical");
    assert_eq!(hint.encoded_len(), Ok(consumed));
});
