//! Scans of a run's shards: both parts of each shard, page by page, damaged ones included.
//!
//! A part that cannot be decoded, that is missing, or that does not fit the other part makes its
//! shard damaged and ends nothing: the other shards of the run are read as usual. A part of a newer
//! format is not damaged and ends the scan.

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};

use super::codec::{ColdPart, HotPart, check_pair, decode_cold, decode_hot, decode_run_head};
use super::core::Core;
use super::engine::{Page, Read};
use super::flight::Io;
use super::key::{Key, SHARD_LOAD};
use super::range::KeyRange;
use super::txn::Versioned;
use crate::error::InfraError;
use crate::run::ShardDamage;
use crate::run_errors::GetRunError;

/// The shards of a run that are not read yet, in id order.
pub(super) struct ShardScan {
    tenant: TenantId,
    run: RunId,
    /// Ranges of the two parts; `None` at the end.
    rest: Option<(KeyRange, KeyRange)>,
    limit: usize,
}

impl ShardScan {
    /// Creates a scan of all shards of a run, or of only one.
    pub(super) fn new(core: &Core, tenant: TenantId, run: RunId, only: Option<ShardId>) -> Self {
        let rest = match only {
            Some(shard) => {
                (KeyRange::hot_shard(tenant, run, shard), KeyRange::cold_shard(tenant, run, shard))
            }
            None => (KeyRange::hot_shards_of(tenant, run), KeyRange::cold_shards_of(tenant, run)),
        };
        assert!(core.limits.page > 0, "a page holds at least one key");
        Self { tenant, run, rest: Some(rest), limit: core.limits.page }
    }

    /// The same without the shards up to `after`.
    pub(super) fn after(mut self, after: ShardId) -> Self {
        let (tenant, shard) = (self.tenant, ShardKey::new(self.run, after));
        self.rest = self.rest.map(|(hot, cold)| {
            let hot = hot.after(&Key::ShardHot { tenant, shard });
            (hot, cold.after(&Key::ShardCold { tenant, shard }))
        });
        self
    }

    /// Reads the next page; `None` after the last one, and if the shards of the run cannot be found
    /// because its registration is incomplete.
    pub(super) async fn next(&mut self, io: &Io) -> Result<Option<Vec<ShardParts>>, GetRunError> {
        let Some((hot, cold)) = self.rest.take() else { return Ok(None) };
        let limit = self.limit;
        // The head is read with every page: a run that is deleted meanwhile is not found, whatever
        // was read before.
        let reads = vec![
            Read::Get(Key::RunHead { tenant: self.tenant, run: self.run }),
            Read::Scan { range: hot, limit },
            Read::Scan { range: cold, limit },
        ];
        let mut answers = io.read(reads).await?;
        let head = answers.value().ok_or(GetRunError::RunNotFound)?;
        // An incomplete registration has stored shards that must not be visible yet.
        if !decode_run_head(self.tenant, self.run, &head.bytes)?.has_roots() {
            return Ok(None);
        }
        let (hot_page, cold_page) = (answers.page(), answers.page());
        let last = [&hot_page, &cold_page].map(|page| self.last_of_full(page));
        // A full page ends before its range does. Shards after the first such end are read with the
        // next page, in both ranges, so a missing part is never confused with one not read yet.
        let end = last.into_iter().flatten().min();
        if let Some(end) = end {
            let shard = ShardKey::new(self.run, end);
            let tenant = self.tenant;
            let hot = hot.after(&Key::ShardHot { tenant, shard });
            self.rest = Some((hot, cold.after(&Key::ShardCold { tenant, shard })));
        }
        let is_covered = |shard: ShardId| end.is_none_or(|end| shard <= end);
        Ok(Some(pair(hot_page, cold_page, is_covered)))
    }

    fn last_of_full(&self, page: &Page) -> Option<ShardId> {
        assert!(page.len() <= self.limit, "a store respects the page limit");
        page.last().filter(|_| page.len() >= self.limit).and_then(|(key, _)| shard_of(key))
    }
}

/// Joins two pages in id order by the ids of their shards.
fn pair(hot: Page, cold: Page, is_covered: impl Fn(ShardId) -> bool) -> Vec<ShardParts> {
    let covered = |page: Page| -> Vec<(ShardId, Versioned)> {
        let ids = page.into_iter().filter_map(|(key, value)| Some((shard_of(&key)?, value)));
        ids.filter(|(shard, _)| is_covered(*shard)).collect()
    };
    let (mut hot, mut cold) =
        (covered(hot).into_iter().peekable(), covered(cold).into_iter().peekable());
    let mut pairs = Vec::with_capacity(hot.len().max(cold.len()));
    while let Some(shard) =
        [hot.peek(), cold.peek()].into_iter().flatten().map(|(shard, _)| *shard).min()
    {
        let is_of = |next: &(ShardId, Versioned)| next.0 == shard;
        let hot = hot.next_if(is_of).map(|(_, value)| value);
        let cold = cold.next_if(is_of).map(|(_, value)| value);
        pairs.push(ShardParts { shard, hot, cold });
    }
    pairs
}

const fn shard_of(key: &Key) -> Option<ShardId> {
    let (Key::ShardHot { shard, .. } | Key::ShardCold { shard, .. }) = key else { return None };
    Some(shard.shard())
}

/// The stored parts of one shard.
pub(super) struct ShardParts {
    pub(super) shard: ShardId,
    pub(super) hot: Option<Versioned>,
    pub(super) cold: Option<Versioned>,
}

/// The decoded parts of one shard.
pub(super) struct DecodedParts<'a> {
    /// `None` if damaged.
    pub(super) hot: Option<HotPart<'a>>,
    /// `None` if damaged.
    pub(super) cold: Option<ColdPart<'a>>,
}

impl ShardParts {
    /// Decodes the parts.
    ///
    /// # Errors
    ///
    /// Returns an error if a part has a newer format.
    pub(super) fn decode(
        &self,
        tenant: TenantId,
        run: RunId,
    ) -> Result<DecodedParts<'_>, InfraError> {
        let shard = ShardKey::new(run, self.shard);
        let hot = self.hot.as_ref().map(|hot| decode_hot(tenant, shard, &hot.bytes));
        let cold = self.cold.as_ref().map(|cold| decode_cold(tenant, shard, &cold.bytes));
        // Each part for itself, so that the intact one is still shown.
        let (mut hot, cold) = (unless_damaged(hot)?, unless_damaged(cold)?);
        if let (Some(state), Some(range)) = (&hot, &cold)
            && check_pair(state, range).is_err()
        {
            // The range is used by other shards too; the state concerns this one only.
            hot = None;
        }
        Ok(DecodedParts { hot, cold })
    }
}

impl DecodedParts<'_> {
    /// Returns the damaged part; `None` if the shard is intact.
    pub(super) const fn damage(&self) -> Option<ShardDamage> {
        match (&self.hot, &self.cold) {
            (Some(_), Some(_)) => None,
            (None, Some(_)) => Some(ShardDamage::Hot),
            (Some(_), None) => Some(ShardDamage::Cold),
            (None, None) => Some(ShardDamage::Both),
        }
    }
}

fn unless_damaged<T>(part: Option<Result<T, InfraError>>) -> Result<Option<T>, InfraError> {
    match part {
        None => Ok(None),
        Some(Ok(part)) => Ok(Some(part)),
        // Damage of one shard. A newer format or a failure of the engine must not be reported as
        // damage.
        Some(Err(error)) if error.is_of_shard() => Ok(None),
        Some(Err(error)) => Err(error),
    }
}

/// Refuses a run with a damaged shard: its work is not known to be done. Accepts a run that was
/// deleted.
///
/// # Errors
///
/// Returns [`InfraError::Corruption`] if there is one, and any error of the scan.
pub(super) async fn refuse_damaged(
    core: &Core,
    io: &Io,
    tenant: TenantId,
    run: RunId,
) -> Result<(), InfraError> {
    let mut scan = ShardScan::new(core, tenant, run, None);
    loop {
        let page = match scan.next(io).await {
            Ok(Some(page)) => page,
            Err(GetRunError::BackendError(error)) => return Err(error),
            Ok(None) | Err(GetRunError::RunNotFound | GetRunError::TenantMismatch { .. }) => {
                return Ok(());
            }
        };
        for parts in &page {
            if parts.decode(tenant, run)?.damage().is_some() {
                let message = "a shard of the run is damaged".to_owned();
                return Err(InfraError::Corruption { operation: SHARD_LOAD, message });
            }
        }
    }
}
