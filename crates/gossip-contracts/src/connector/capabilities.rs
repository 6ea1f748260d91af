//! Optional capabilities of a connector, and the decision that each one changes.
//!
//! Only capabilities that the runtime acts on are here. A capability is a promise: the conformance
//! suite checks each one that is declared. None is required for correctness.

/// The abilities of a connector beyond listing and opening.
///
/// Start from [`Capabilities::NONE`] and add; new fields default to absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Every listed item has a size hint.
    ///
    /// Decides whether a split weighs remaining work in bytes or in items, and whether a limit in
    /// bytes per second can charge an item before it is opened.
    pub(crate) sizes: bool,
    /// [`Connector::count_keys`](super::Connector::count_keys) returns an exact count for every
    /// range.
    ///
    /// Decides whether progress is labelled exact or estimated.
    pub(crate) counts: bool,
    /// [`Connector::sample_keys`](super::Connector::sample_keys) fills a sample.
    ///
    /// Decides whether initial shards are split by the density of keys or evenly by bytes.
    pub(crate) samples: bool,
    /// The cost of starting at a key without a token.
    ///
    /// Decides how many initial shards are worth their first seek, and from which remaining size on
    /// a split pays off: each new shard starts at a key without a token.
    pub(crate) seek: SeekCost,
}

impl Capabilities {
    /// The minimum: a connector that lists and opens.
    pub const NONE: Self =
        Self { sizes: false, counts: false, samples: false, seek: SeekCost::Scan };

    /// Declares a size hint on every item.
    pub const fn with_sizes(self) -> Self {
        Self { sizes: true, ..self }
    }

    /// Declares exact counts.
    pub const fn with_counts(self) -> Self {
        Self { counts: true, ..self }
    }

    /// Declares samples.
    pub const fn with_samples(self) -> Self {
        Self { samples: true, ..self }
    }

    /// Sets the cost of a seek.
    pub const fn with_seek(self, seek: SeekCost) -> Self {
        Self { seek, ..self }
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::NONE
    }
}

/// The cost of starting at a key for which there is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeekCost {
    /// About the cost of listing a few items: a computed position, a descent through directories.
    Direct,
    /// Everything before the key must be read first: counting rows from the start of a file.
    Scan,
}
