//! What a connector can do beyond the minimum, and which decision each answer changes.
//!
//! Only what the runtime acts on is here. A capability is a promise: the conformance suite checks
//! each one that is declared, and none is needed to be correct.

/// What a connector can do beyond listing and opening.
///
/// Start from [`Capabilities::NONE`] and add; new fields default to "cannot".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Every listed item has a size hint.
    ///
    /// Decides whether remaining work is weighed in bytes or in items when a shard is split, and
    /// whether a throttle in bytes per second can charge an item before it is opened.
    pub sizes: bool,
    /// [`Connector::count_keys`](super::Connector::count_keys) answers exactly for every range.
    ///
    /// Decides whether progress is labelled exact or estimated.
    pub counts: bool,
    /// [`Connector::sample_keys`](super::Connector::sample_keys) fills a sample.
    ///
    /// Decides whether initial shards are cut by the density of keys or evenly by bytes.
    pub samples: bool,
    /// What starting at a key without a token costs.
    ///
    /// Decides how many initial shards are worth their first seek, and from which remaining size on
    /// a split pays: each new shard starts at a bare key.
    pub seek: SeekCost,
}

impl Capabilities {
    /// The least a connector can be: it lists and opens.
    pub const NONE: Self =
        Self { sizes: false, counts: false, samples: false, seek: SeekCost::Scan };

    /// Promises a size hint on every item.
    pub const fn with_sizes(self) -> Self {
        Self { sizes: true, ..self }
    }

    /// Promises exact counts.
    pub const fn with_counts(self) -> Self {
        Self { counts: true, ..self }
    }

    /// Promises samples.
    pub const fn with_samples(self) -> Self {
        Self { samples: true, ..self }
    }

    /// States what a seek costs.
    pub const fn with_seek(self, seek: SeekCost) -> Self {
        Self { seek, ..self }
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::NONE
    }
}

/// What it costs to start at a key for which there is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeekCost {
    /// About the cost of listing a few items: a computed position, a descent of directories.
    Direct,
    /// Everything before the key must be read first: counting rows from the top of a file.
    Scan,
}
