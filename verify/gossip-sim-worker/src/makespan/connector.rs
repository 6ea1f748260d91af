//! The source of a case: keys in memory, with three ways to sample them.

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, MemoryConnector, OpenError,
    Page, PageItem,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};

/// Up to this number of directories, a range is sampled by file.
const FEW_DIRECTORIES: usize = 3;

/// The result of sampling the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Keys, evenly drawn.
    Keys,
    /// Names of directories, each representing its contents; files only within a few of them.
    Directories,
    /// Nothing.
    Nothing,
}

/// Keys in memory.
#[derive(Clone)]
pub(super) struct UnevenSource {
    pub(super) keys: MemoryConnector,
    /// In order; empty unless looks show them.
    pub(super) directories: Vec<Vec<u8>>,
    pub(super) look: Look,
}

impl UnevenSource {
    /// Returns the same source without samples.
    pub(super) fn unseen(&self) -> Self {
        Self { look: Look::Nothing, ..self.clone() }
    }
}

impl Connector for UnevenSource {
    fn capabilities(&self) -> Capabilities {
        self.keys.capabilities()
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        self.keys.enumerate(range, from)
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        self.keys.open(item, scratch)
    }

    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        match self.look {
            Look::Nothing => Ok(()),
            Look::Keys => self.keys.sample_keys(range, sample),
            Look::Directories => {
                let inside: Vec<_> =
                    self.directories.iter().filter(|name| range.contains_key(name)).collect();
                if inside.len() <= FEW_DIRECTORIES {
                    return self.keys.sample_keys(range, sample);
                }
                for name in inside {
                    // A full page ends the sampling.
                    if sample.push(PageItem::new(name)).is_err() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }
}
