//! The laws of successor, midpoint and split points, on any two keys.
#![no_main]

use gossip_contracts::coordination::MAX_KEY_SIZE;
use gossip_frontier::key_encoding::{KeyBuf, KeyEncoding};
use gossip_frontier::{
    KeyRange, byte_midpoint, decode_manifest_row_key, key_successor, prefix_successor, split_points,
};
use gossip_fuzz::Reader;
use libfuzzer_sys::fuzz_target;

/// Most parts a range is cut into here; enough for every shape, and quick.
const PARTS_MAX: usize = 9;

fuzz_target!(|data: &[u8]| {
    let mut reader = Reader::new(data);
    let (a, b) = (reader.key(), reader.key());
    prefix_successor_is_the_tight_upper_bound(&a, &b);
    key_successor_is_the_next_key(&a, &b);
    byte_midpoint_lies_inside_whenever_there_is_room(&a, &b);
    manifest_row_keys_decode_to_what_encodes_to_them(&a);
    let parts = 1 + usize::from(reader.byte()) % PARTS_MAX;
    split_points_ascend_strictly_inside(&a, &b, parts);
});

fn prefix_successor_is_the_tight_upper_bound(prefix: &[u8], other: &[u8]) {
    let mut buf = KeyBuf::new();
    let has_none = prefix.iter().all(|&byte| byte == 0xFF) || prefix.len() > MAX_KEY_SIZE;
    let Some(successor) = prefix_successor(prefix, &mut buf) else {
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

fn key_successor_is_the_next_key(key: &[u8], other: &[u8]) {
    let mut buf = KeyBuf::new();
    let Some(successor) = key_successor(key, &mut buf) else {
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

fn byte_midpoint_lies_inside_whenever_there_is_room(a: &[u8], b: &[u8]) {
    let (mut buf, mut next) = (KeyBuf::new(), KeyBuf::new());
    let is_legal = a < b && a.len() <= MAX_KEY_SIZE && b.len() <= MAX_KEY_SIZE;
    let has_room = is_legal && key_successor(a, &mut next).is_some_and(|next| next < b);
    let midpoint = byte_midpoint(a, b, &mut buf);
    assert_eq!(midpoint.is_some(), has_room);
    if let Some(midpoint) = midpoint {
        assert!(a < midpoint && midpoint < b);
        assert!(midpoint.len() <= MAX_KEY_SIZE);
    }
}

fn manifest_row_keys_decode_to_what_encodes_to_them(key: &[u8]) {
    let decoded = decode_manifest_row_key(key);
    assert_eq!(decoded.is_some(), key.len() == 16);
    if let Some(row) = decoded {
        let mut buf = KeyBuf::new();
        row.encode_into(&mut buf);
        assert_eq!(buf.as_bytes(), key);
    }
}

fn split_points_ascend_strictly_inside(a: &[u8], b: &[u8], parts: usize) {
    let Ok(range) = KeyRange::try_new(a, b) else {
        return;
    };
    let mut bufs: [KeyBuf; PARTS_MAX] = std::array::from_fn(|_| KeyBuf::new());
    let points = split_points(range, parts, &mut bufs).expect("parts and buffers are in bounds");
    assert!(points.len() < parts);
    let mut last = a;
    for &point in points.iter() {
        assert!(last < point && point < b);
        assert!(point.len() <= MAX_KEY_SIZE);
        last = point;
    }
    // One point fewer than parts, unless the range runs out of keys.
    if points.len() + 1 < parts {
        let (mut next, mut buf) = (a.to_vec(), KeyBuf::new());
        for _ in 0..=points.len() {
            next = key_successor(&next, &mut buf).expect("`b` is greater").to_vec();
        }
        assert!(next >= b.to_vec(), "the range holds more keys than parts were made");
    }
}
