//! What the tests of several connectors share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gossip_contracts::connector::{CheckedEnumeration, Connector, Page, PageLimits};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};

/// Every key there can be.
pub(crate) const WHOLE: ShardSpecRef<'_> = ShardSpecRef::new(b"", b"", b"");

/// A page of few items, so that listings cross pages.
pub(crate) fn small_page() -> Page {
    Page::with_limits(PageLimits::try_new(3, 64 * 1024).unwrap())
}

/// Every key of `range` above `from`, page by checked page.
pub(crate) fn keys_from(
    connector: &dyn Connector,
    range: ShardSpecRef<'_>,
    from: CursorUpdate<'_>,
) -> Vec<Vec<u8>> {
    let mut listing = CheckedEnumeration::open(connector, range, from).unwrap();
    let (mut page, mut keys) = (small_page(), Vec::new());
    loop {
        listing.next_page(&mut page).unwrap();
        keys.extend(page.items().map(|item| item.key().to_vec()));
        if page.is_exhausted() {
            return keys;
        }
    }
}

/// Every key.
pub(crate) fn all_keys(connector: &dyn Connector) -> Vec<Vec<u8>> {
    keys_from(connector, WHOLE, CursorUpdate::initial())
}

/// The law behind resuming: from every cursor, at a key or between two, the rest is listed.
pub(crate) fn assert_every_cursor_gives_the_suffix(connector: &dyn Connector) {
    let keys = all_keys(connector);
    assert!(keys.is_sorted_by(|a, b| a < b));
    for (index, key) in keys.iter().enumerate() {
        let rest = keys_from(connector, WHOLE, CursorUpdate::with_last_key(key));
        assert_eq!(rest, keys[index + 1..], "after the key at {index}");
        let above = [key, &b"\0"[..]].concat();
        let rest = keys_from(connector, WHOLE, CursorUpdate::with_last_key(&above));
        assert_eq!(rest, keys[index + 1..], "above the key at {index}");
        let from_here = ShardSpecRef::new(key, b"", b"");
        let rest = keys_from(connector, from_here, CursorUpdate::initial());
        assert_eq!(rest, keys[index..], "from the key at {index}");
    }
}

/// A sample of `range` in a page of `items`.
pub(crate) fn sample_of(
    connector: &dyn Connector,
    range: ShardSpecRef<'_>,
    items: usize,
) -> (Vec<Vec<u8>>, bool) {
    let mut page = Page::with_limits(PageLimits::try_new(items, 128 * 1024).unwrap());
    connector.sample_keys(range, &mut page).unwrap();
    assert_eq!(page.fault(), None);
    (page.items().map(|item| item.key().to_vec()).collect(), page.is_exhausted())
}

/// A directory of its own for one test, removed at the end.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gossip-runtime-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file below it, making directories on the way.
    pub(crate) fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // What cannot be removed is left to the system, which empties the place anyway.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
