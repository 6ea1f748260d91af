//! Decoding metadata never panics; what decodes encodes to the same bytes, and the helpers agree.
#![no_main]

use gossip_contracts::coordination::{MAX_METADATA_SIZE, ShardSpecRef};
use gossip_frontier::hint::{
    MetadataBuf, ShardHint, ShardMetadata, decode_connector_extra, decode_hint, decode_metadata,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let decoded = ShardMetadata::decode(data);
    // The helpers read the same bytes out of a shard.
    let spec = ShardSpecRef::new(b"a", b"b", data);
    assert_eq!(decode_metadata(spec), decoded);
    assert_eq!(decode_hint(spec), decoded.map(|metadata| metadata.hint));
    assert_eq!(decode_connector_extra(spec), decoded.map(|metadata| metadata.connector_extra));

    let Ok(metadata) = decoded else { return };
    if data.is_empty() {
        assert_eq!(metadata, ShardMetadata::from_hint(ShardHint::Range));
        return;
    }
    // Whatever the connector wrote is the end of the input, byte for byte.
    assert!(data.ends_with(metadata.connector_extra));

    let mut buf = MetadataBuf::new();
    let Ok(encoded) = metadata.encode_into(&mut buf) else {
        assert!(data.len() > MAX_METADATA_SIZE, "small metadata was refused");
        return;
    };
    assert_eq!(encoded, data, "the encoding is not canonical");
    assert_eq!(ShardMetadata::decode(encoded), Ok(metadata));
});
