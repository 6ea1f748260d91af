//! The source of a world: keys in order, and the effect of processing each.

use std::sync::atomic::{AtomicU32, Ordering};

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, MemoryConnector, OpenError,
    Page, PageItem, PageLimits,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_sim::Stream;

use super::plan::Setting;

/// Every key lies in it.
pub(super) const ROOT: (&[u8], &[u8]) = (b"!", b"~");

/// Minimum page size in bytes, for a page of few short keys.
const PAGE_BYTES: usize = gossip_contracts::connector::MIN_PAGE_BYTES;

/// One listing of so many fails.
const LISTING_FAILS: u64 = 24;

/// The effect of processing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Temper {
    /// It is done.
    Good,
    /// It fails so many times and is done then.
    Fails(u32),
    /// It fails whenever it is tried.
    AlwaysFails,
    /// It fails for good.
    Hopeless,
    /// It kills the process.
    Kills,
}

impl Temper {
    /// Returns whether the key must be failed or parked in the end.
    pub(super) const fn is_bad(self) -> bool {
        match self {
            Self::Good | Self::Fails(_) => false,
            Self::AlwaysFails | Self::Hopeless | Self::Kills => true,
        }
    }
}

/// One key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    /// Ticks that it takes.
    pub(super) cost: u64,
    pub(super) temper: Temper,
}

/// The keys of a world, in their order.
#[derive(Debug)]
pub(super) struct WorldSource {
    pub(super) entries: Vec<Entry>,
    memory: MemoryConnector,
    page: usize,
    /// Listings so far; some of them fail.
    listings: AtomicU32,
    fails: bool,
}

impl WorldSource {
    pub(super) fn of(setting: &Setting) -> Self {
        let mut draw = Stream::named(setting.nature.seed, "source", 0);
        let mut entries: Vec<Entry> = (0..setting.keys)
            .map(|number| Entry {
                key: key(number, &mut draw),
                cost: 1 + draw.below(setting.cost),
                temper: if draw.one_in(20) { Temper::Fails(1) } else { Temper::Good },
            })
            .collect();
        for _ in 0..setting.failing {
            let temper = if draw.one_in(2) { Temper::Hopeless } else { Temper::AlwaysFails };
            entries[draw.below(setting.keys as u64) as usize].temper = temper;
        }
        for _ in 0..setting.killing {
            entries[draw.below(setting.keys as u64) as usize].temper = Temper::Kills;
        }
        let items = entries.iter().map(|entry| (entry.key.clone(), Vec::new()));
        let memory = MemoryConnector::try_new(items).expect("keys are in order and short");
        let (listings, fails) = (AtomicU32::new(0), setting.nature.roughness > 0);
        Self { entries, memory, page: setting.page, listings, fails }
    }

    /// The number of a key.
    pub(super) fn number(&self, key: &[u8]) -> Option<usize> {
        self.entries.binary_search_by(|entry| entry.key.as_slice().cmp(key)).ok()
    }

    /// The first number whose key is not below `key`.
    pub(super) fn lower(&self, key: &[u8]) -> usize {
        self.entries.partition_point(|entry| entry.key.as_slice() < key)
    }

    /// The first number whose key is above `key`.
    pub(super) fn behind(&self, key: &[u8]) -> usize {
        self.entries.partition_point(|entry| entry.key.as_slice() <= key)
    }

    /// Returns the same keys without listing failures, for the verifier.
    pub(super) const fn plain(&self) -> &MemoryConnector {
        &self.memory
    }
}

/// Keys of several lengths, some of which begin with another.
fn key(number: usize, draw: &mut Stream) -> Vec<u8> {
    let mut key = format!("{:04x}", number / 2).into_bytes();
    if number % 2 == 1 {
        key.extend((0..1 + draw.below(6)).map(|_| b'0'));
    }
    key
}

impl Connector for WorldSource {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        let number = self.listings.fetch_add(1, Ordering::Relaxed);
        if self.fails && u64::from(number) % LISTING_FAILS == LISTING_FAILS - 1 {
            return Err(ConnectorError::Unavailable { kind: std::io::ErrorKind::TimedOut });
        }
        let inner = self.memory.enumerate(range, from)?;
        let limits = PageLimits::try_new(self.page, PAGE_BYTES).expect("a small page is a page");
        Ok(Box::new(SmallPages { inner, small: Page::with_limits(limits) }))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        self.memory.open(item, scratch)
    }

    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        self.memory.sample_keys(range, sample)
    }
}

/// Lists in smaller pages than the caller's.
struct SmallPages {
    inner: Box<dyn Enumeration>,
    small: Page,
}

impl Enumeration for SmallPages {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        self.small.clear();
        self.inner.next_page(&mut self.small)?;
        for item in self.small.items() {
            // The caller's page holds the contents of a smaller one, including a fault.
            if page.push(item).is_err() {
                return Ok(());
            }
        }
        if self.small.is_exhausted() {
            page.mark_exhausted();
        }
        Ok(())
    }
}
