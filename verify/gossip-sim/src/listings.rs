//! Listings by a simulated administrator: the runs of its tenant in pages of different sizes, and
//! the shards of a run by filter.
//!
//! The choices come from a stream of their own and do not shift the administrator's other choices.

use gossip_contracts::identity::{RunId, ShardId};
use gossip_coordination::{AsyncRunManagement, ShardFilter, ShardStatus, ShardSummary};

use super::admin::Admin;
use super::context::Draft;
use super::op::Verb;
use super::oracle::Rule;
use super::queries::RunPage;
use super::worker::keys;

/// Size of a large page: mostly more than there are runs.
const LARGE_PAGE: usize = 16;

/// Maximum size of a small page: mostly fewer than there are runs.
const SMALL_PAGE_MAX: u64 = 3;

/// One listing in this many uses small pages.
const SMALL_ONE_IN: u64 = 3;

/// One listing in this many begins after some run instead of at the first.
const BEHIND_ONE_IN: u64 = 4;

/// Maximum number of pages per listing: the list may grow while it is read.
const WALK_PAGES_MAX: u32 = 6;

impl Admin {
    /// Lists the tenant's runs, all or the unfinished ones, page by page.
    pub(super) async fn list_runs(&mut self) {
        let odd = |bound| self.cx.odd_below(bound);
        let verb = if odd(2) == 0 { Verb::ListRuns } else { Verb::ActiveRuns };
        let small = odd(SMALL_ONE_IN) == 0;
        let limit = if small { 1 + odd(SMALL_PAGE_MAX) as usize } else { LARGE_PAGE };
        let made = self.cx.shared.borrow().oracle.runs_of[self.cx.tenant as usize].len() as u64;
        let behind = odd(BEHIND_ONE_IN) == 0 && made > 0;
        let after = behind.then(|| RunId::from_raw(1 + odd(made)));
        let mut page = Some(RunPage { after, limit });
        for _ in 0..WALK_PAGES_MAX {
            let Some(next) = page else { break };
            page = self.list_page(verb, next).await;
        }
    }

    /// Lists one page. Returns the next one if this one is full.
    async fn list_page(&mut self, verb: Verb, page: RunPage) -> Option<RunPage> {
        let op = self.cx.begin(Draft::new(verb));
        let (tenant, mut runs) = (self.cx.tenant_id, Vec::new());
        let RunPage { after, limit } = page;
        let result = if verb == Verb::ListRuns {
            self.handle.list_runs_into(tenant, after, limit, &mut runs).await
        } else {
            self.handle.list_active_runs_into(tenant, after, limit, &mut runs).await
        };
        self.cx.trace_answer(&op, &runs);
        self.cx.end_plain(&op, &result);
        runs.iter().for_each(|run| self.cx.hash_values(&[run.as_raw()]));
        result.ok()?;
        self.cx.judge(|oracle| oracle.check_listed_runs(&op, page, &runs));
        let last = runs.last().copied().filter(|_| runs.len() >= limit)?;
        Some(RunPage { after: Some(last), limit })
    }

    /// Lists every shard of a run.
    pub(super) async fn list(&mut self, run: u32) -> Vec<ShardSummary> {
        self.list_by(run, ShardFilter::all()).await
    }

    /// Lists the shards of a run that match a random filter.
    pub(super) async fn list_some(&mut self, run: u32) -> Vec<ShardSummary> {
        self.list_by(run, self.any_filter(run)).await
    }

    /// Chooses each condition independently, so that many filters have none and a few have all.
    fn any_filter(&self, run: u32) -> ShardFilter {
        let odd = |bound: usize| self.cx.odd_below(bound as u64) as usize;
        let status = ShardStatus::ALL.get(odd(2 * ShardStatus::ALL.len())).copied();
        let is_leased = [Some(true), Some(false)].get(odd(6)).copied().flatten();
        let root_only = odd(4) == 0;
        let only = (odd(6) == 0).then(|| self.any_id(run));
        ShardFilter { status, is_leased, root_only, only, damaged_only: false, page: None }
    }

    /// Returns the id of a shard of a run, or of none.
    fn any_id(&self, run: u32) -> ShardId {
        let shared = self.cx.shared.borrow();
        let shards = &shared.oracle.runs[run as usize].shards;
        let shard = shards.get(self.cx.odd_below(shards.len() as u64 + 1) as usize);
        let id = shard.map(|shard| shared.oracle.shards[*shard as usize].key.shard());
        id.unwrap_or(ShardId::from_raw(u64::MAX))
    }

    /// Lists the shards that match `filter`. Every listed position must have existed.
    async fn list_by(&mut self, run: u32, filter: ShardFilter) -> Vec<ShardSummary> {
        let (op, id) = (self.cx.begin(self.about(Verb::ListShards, run)), self.id(run));
        let (tenant, mut rows) = (self.cx.tenant_id, Vec::new());
        let result = self.handle.list_shards_into(op.now, tenant, id, filter, &mut rows).await;
        self.cx.trace_answer(&op, &rows);
        if result.is_ok() {
            self.cx.judge(|oracle| oracle.check_marks(&op, filter, &rows));
        }
        // A row that is marked as damaged reports the damage.
        if rows.iter().any(|row| row.damage.is_some()) {
            self.cx.end_damaged(&op);
            self.repair_marked(run, &rows).await;
            return Vec::new();
        }
        self.cx.end_plain(&op, &result);
        if result.is_ok() {
            self.cx.judge(|oracle| oracle.check_listed_shards(&op, filter, &rows));
        }
        let keys = keys(&self.cx);
        for row in &rows {
            let until = row.lease_deadline.map_or(0, |until| until.as_raw());
            let result = [row.shard.as_raw(), row.fence_epoch.as_raw(), row.status as u64, until];
            self.cx.hash_values(&result);
            let found = self.cx.find(self.cx.key_of_run(run, row.shard));
            let done =
                row.last_key.as_ref().and_then(|key| keys.number(key)).map_or(0, |it| it + 1);
            self.cx.hash_values(&[done.into()]);
            self.cx.judge(|oracle| {
                let honest = found.is_some_and(|shard| {
                    let facts = &oracle.shards[shard as usize];
                    done <= facts.done.max(facts.range.0) && row.fence_epoch.as_raw() <= facts.fence
                });
                let honest = honest || op.misled.get();
                oracle.require(
                    honest,
                    Rule::Acknowledged,
                    "a listing has a position that never existed",
                )
            });
        }
        rows
    }
}
