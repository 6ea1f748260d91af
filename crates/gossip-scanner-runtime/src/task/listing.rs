//! The listing of a shard, up to a page ahead of the items that are processed.

use std::time::Duration;

use gossip_contracts::connector::{CheckedEnumeration, Connector, Page, PageError};
use gossip_contracts::identity::LogicalTime;

use super::{COLLECT_PATIENCE, ShardTask, TaskContext};
use crate::processor::Broken;

/// A page that was listed before its turn, and how that ended.
pub(super) struct Ahead {
    pub(super) page: Page,
    pub(super) listed: Result<(), PageError>,
}

impl ShardTask {
    /// Fills the page from the listing, and opens one at the cursor if there is none. Fails if the
    /// connector does or breaks its contract.
    pub(super) fn list(&mut self, connector: &dyn Connector) -> Result<(), PageError> {
        let mut listing = match self.listing.take() {
            Some(listing) => listing,
            None => {
                let from = self.covered.listed_from();
                CheckedEnumeration::open(connector, self.spec().as_spec_ref(), from)?
            }
        };
        let listed = listing.next_page(&mut self.page);
        self.listing = Some(listing);
        listed
    }

    /// Collects reports; lists the next page before it waits for them, if all items of this one
    /// were started.
    pub(super) fn collect_beside_listing<B>(
        &mut self,
        now: LogicalTime,
        context: &mut TaskContext<'_, B>,
    ) -> Result<(), Broken> {
        if self.may_list_ahead() {
            // Without a wait first: it starts the items that a processor has gathered.
            self.collect(now, Duration::ZERO, context)?;
            if self.submitted == 0 {
                return Ok(());
            }
            if self.may_list_ahead()
                && let Some(listing) = &mut self.listing
            {
                let limits = self.page.limits();
                let spare = self.spare.take().filter(|spare| spare.limits() == limits);
                let mut page = spare.unwrap_or_else(|| Page::with_limits(limits));
                let listed = listing.next_page(&mut page);
                self.ahead = Some(Ahead { page, listed });
            }
        }
        self.collect(now, COLLECT_PATIENCE, context)
    }

    fn may_list_ahead(&self) -> bool {
        let is_started = self.mark.next().is_none() && !self.page.is_exhausted();
        let is_undecided = self.decision.is_none() && self.split.is_none() && self.cuts.is_empty();
        // After grants without progress, a listing may be what ends the process.
        is_started && is_undecided && self.ahead.is_none() && self.cautious == 0
    }

    /// Drops the listing and what it has listed ahead.
    pub(super) fn drop_listing(&mut self) {
        (self.listing, self.ahead) = (None, None);
    }
}
