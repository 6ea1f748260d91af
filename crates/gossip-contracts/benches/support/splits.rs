//! Keys, and shards bounded by them.

use gossip_contracts::coordination::ShardSpecRef;

/// Length of a typical path.
pub(crate) const KEY_LEN: usize = 40;

/// One key.
pub(crate) type Key = [u8; KEY_LEN];

/// Returns ordered keys that differ only near their end, like the files of one directory.
pub(crate) fn keys(count: usize) -> Vec<Key> {
    let key = |index: u64| {
        let mut key = [b'k'; KEY_LEN];
        key[KEY_LEN - 8..].copy_from_slice(&index.to_be_bytes());
        key
    };
    (0..count as u64).map(key).collect()
}

/// Returns the shard from the first key to the last.
pub(crate) fn parent(keys: &[Key]) -> ShardSpecRef<'_> {
    ShardSpecRef::new(&keys[0], &keys[keys.len() - 1], b"metadata")
}

/// Returns the points that split [`parent`] into [`children`].
pub(crate) fn points(keys: &[Key]) -> Vec<&[u8]> {
    let inner = &keys[1..keys.len() - 1];
    inner.iter().map(Key::as_slice).collect()
}

/// Returns the shards from each key to the next.
pub(crate) fn children(keys: &[Key]) -> Vec<ShardSpecRef<'_>> {
    keys.windows(2).map(parent).collect()
}

/// Returns the items in a pseudo-random order that is the same in every run.
pub(crate) fn shuffled<T: Copy>(items: &[T]) -> Vec<T> {
    // A prime that divides no length used here, so that every item appears once.
    const STEP: usize = 7919;
    (0..items.len()).map(|index| items[index * STEP % items.len()]).collect()
}
