//! Hints, metadata and the arithmetic of keys.

use std::cell::RefCell;

use gossip_contracts::coordination::{MAX_KEY_SIZE, MAX_METADATA_SIZE, ShardSpecRef};
use gossip_frontier::hint::{
    MetadataBuf, ShardHint, ShardMetadata, decode_connector_extra, decode_hint, decode_metadata,
};
use gossip_frontier::key_encoding::{KeyBuf, KeyEncoding, ManifestRowKey};
use gossip_frontier::{
    FixedWidthKey, I64Key, KeyRange, PairKey, U64Key, byte_midpoint, decode_manifest_row_key,
    key_successor, prefix_successor, split_points,
};

use crate::input::Reader;

/// Decoding a hint never panics, and gives back exactly the bytes it consumed.
pub(crate) fn hint(data: &[u8]) -> bool {
    let Ok((hint, consumed)) = ShardHint::decode(data) else {
        return false;
    };
    assert!(consumed <= data.len(), "consumed more than there was");
    let frame = &data[..consumed];
    // Trailing bytes are ignored.
    assert_eq!(ShardHint::decode(frame), Ok((hint, consumed)));
    // Every proper prefix of a frame is cut short, so no frame is the beginning of another.
    assert!(ShardHint::decode(&frame[..consumed - 1]).is_err());

    let mut buf = MetadataBuf::new();
    // A prefix may decode and yet be larger than metadata may be; then it cannot be encoded.
    let Ok(encoded) = hint.encode_into(&mut buf) else {
        assert!(consumed > MetadataBuf::CAPACITY, "a small hint was refused");
        return true;
    };
    assert_eq!(encoded, frame, "the encoding is not canonical");
    assert_eq!(hint.encoded_len(), Ok(consumed));
    true
}

/// Decoding metadata never panics; what decodes encodes to the same bytes, and the helpers agree.
pub(crate) fn metadata(data: &[u8]) -> bool {
    let decoded = ShardMetadata::decode(data);
    // The helpers read the same bytes out of a shard.
    let spec = ShardSpecRef::new(b"a", b"b", data);
    assert_eq!(decode_metadata(spec), decoded);
    assert_eq!(decode_hint(spec), decoded.map(|metadata| metadata.hint));
    assert_eq!(decode_connector_extra(spec), decoded.map(|metadata| metadata.connector_extra));

    let Ok(metadata) = decoded else { return false };
    if data.is_empty() {
        assert_eq!(metadata, ShardMetadata::from_hint(ShardHint::Range));
        return true;
    }
    // Whatever the connector wrote is the end of the input, byte for byte.
    assert!(data.ends_with(metadata.connector_extra));

    let mut buf = MetadataBuf::new();
    let Ok(encoded) = metadata.encode_into(&mut buf) else {
        assert!(data.len() > MAX_METADATA_SIZE, "small metadata was refused");
        return true;
    };
    assert_eq!(encoded, data, "the encoding is not canonical");
    assert_eq!(ShardMetadata::decode(encoded), Ok(metadata));
    true
}

/// Keys of a fixed width decode from exactly that many bytes, encode to the same bytes, and are
/// ordered as their bytes.
///
/// An input is accepted if it has two keys of every width.
pub(crate) fn integer_keys(data: &[u8]) -> bool {
    let taken = [
        fixed_width::<U64Key>(data),
        fixed_width::<I64Key>(data),
        fixed_width::<ManifestRowKey>(data),
        fixed_width::<PairKey<I64Key, U64Key>>(data),
        fixed_width::<PairKey<PairKey<U64Key, I64Key>, ManifestRowKey>>(data),
    ];
    taken == [true; 5]
}

fn fixed_width<K: FixedWidthKey + Ord>(data: &[u8]) -> bool {
    assert_eq!(K::decode(data).is_some(), data.len() == K::WIDTH, "exactly one width");
    // Room for the widest key above.
    let mut bytes = [0; 64];
    let mut again = |key: K, expected: &[u8]| {
        let rest = key.write_fixed(&mut bytes).expect("room for every key").len();
        assert_eq!(&bytes[..bytes.len() - rest], expected, "the encoding is not canonical");
    };
    let mut chunks = data.chunks_exact(K::WIDTH);
    let (Some(a), Some(b)) = (chunks.next(), chunks.next()) else { return false };
    let (x, y) = (K::decode(a).expect("its width"), K::decode(b).expect("its width"));
    assert_eq!(x.cmp(&y), a.cmp(b), "byte order is another order");
    again(x, a);
    again(y, b);
    true
}

/// Most parts a range is cut into here; enough for every shape, and quick.
const PARTS_MAX: usize = 9;

/// The laws of successor, midpoint and split points, on any two keys.
///
/// An input is accepted if it is a range with space for a point.
pub(crate) fn key_arithmetic(data: &[u8]) -> bool {
    let mut reader = Reader::new(data);
    let (a, b) = (reader.key(), reader.key());
    let parts = 1 + usize::from(reader.byte()) % PARTS_MAX;
    thread_local! {
        // Kept: to clear nine of them costs more than all the arithmetic on short keys.
        static BUFS: RefCell<[KeyBuf; PARTS_MAX]> =
            RefCell::new(std::array::from_fn(|_| KeyBuf::new()));
    }
    BUFS.with_borrow_mut(|bufs| {
        let [one, two, ..] = bufs;
        prefix_successor_is_the_tight_upper_bound(&a, &b, one);
        key_successor_is_the_next_key(&a, &b, one);
        byte_midpoint_lies_inside_whenever_there_is_room(&a, &b, [one, two]);
        manifest_row_keys_decode_to_what_encodes_to_them(&a, one);
        split_points_ascend_strictly_inside(&a, &b, parts, bufs)
    })
}

fn prefix_successor_is_the_tight_upper_bound(prefix: &[u8], other: &[u8], buf: &mut KeyBuf) {
    let has_none = prefix.iter().all(|&byte| byte == 0xFF) || prefix.len() > MAX_KEY_SIZE;
    let Some(successor) = prefix_successor(prefix, buf) else {
        assert!(has_none, "a prefix with a successor got none");
        return;
    };
    assert!(!has_none);
    assert!(successor > prefix);
    assert!(successor.len() <= prefix.len());
    // Every key is in `[prefix, successor)` exactly if it begins with the prefix.
    let extended = [prefix, other].concat();
    assert!(prefix <= extended.as_slice() && extended.as_slice() < successor);
    assert_eq!(prefix <= other && other < successor, other.starts_with(prefix));
}

fn key_successor_is_the_next_key(key: &[u8], other: &[u8], buf: &mut KeyBuf) {
    let Some(successor) = key_successor(key, buf) else {
        let is_greatest = key.len() == MAX_KEY_SIZE && key.iter().all(|&byte| byte == 0xFF);
        assert!(is_greatest || key.len() > MAX_KEY_SIZE);
        return;
    };
    assert!(key.len() <= MAX_KEY_SIZE && successor.len() <= MAX_KEY_SIZE);
    assert!(successor > key);
    // No key of legal size lies between.
    if other.len() <= MAX_KEY_SIZE && other > key {
        assert!(other >= successor);
    }
}

fn byte_midpoint_lies_inside_whenever_there_is_room(
    a: &[u8],
    b: &[u8],
    [buf, next]: [&mut KeyBuf; 2],
) {
    let is_legal = a < b && a.len() <= MAX_KEY_SIZE && b.len() <= MAX_KEY_SIZE;
    let has_room = is_legal && key_successor(a, next).is_some_and(|next| next < b);
    let midpoint = byte_midpoint(a, b, buf);
    assert_eq!(midpoint.is_some(), has_room);
    if let Some(midpoint) = midpoint {
        assert!(a < midpoint && midpoint < b);
        assert!(midpoint.len() <= MAX_KEY_SIZE);
    }
}

fn manifest_row_keys_decode_to_what_encodes_to_them(key: &[u8], buf: &mut KeyBuf) {
    let decoded = decode_manifest_row_key(key);
    assert_eq!(decoded.is_some(), key.len() == 16);
    if let Some(row) = decoded {
        row.encode_into(buf);
        assert_eq!(buf.as_bytes(), key);
    }
}

fn split_points_ascend_strictly_inside(
    a: &[u8],
    b: &[u8],
    parts: usize,
    bufs: &mut [KeyBuf; PARTS_MAX],
) -> bool {
    let Ok(range) = KeyRange::try_new(a, b) else {
        return false;
    };
    let points = split_points(range, parts, bufs).expect("parts and buffers are in bounds");
    assert!(points.len() < parts);
    let mut last = a;
    for &point in points.iter() {
        assert!(last < point && point < b);
        assert!(point.len() <= MAX_KEY_SIZE);
        last = point;
    }
    let has_points = !points.is_empty();
    // One point fewer than parts, unless the range runs out of keys.
    if points.len() + 1 < parts {
        let (mut next, mut buf) = (a.to_vec(), KeyBuf::new());
        for _ in 0..=points.len() {
            next = key_successor(&next, &mut buf).expect("`b` is greater").to_vec();
        }
        assert!(next >= b.to_vec(), "the range holds more keys than parts were made");
    }
    has_points
}
