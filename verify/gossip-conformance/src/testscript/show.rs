//! Read-only commands, through the public queries, so that they work on any server.

use gossip_coordination::protocol::{CLAIM_CANDIDATES_MAX, ClaimCandidates};
use gossip_coordination::{
    GetRunError, RunManagement, RunProgress, RunRecord, ShardFilter, ShardSummary,
    evaluate_run_terminal,
};

use super::ScriptBackend;
use super::answer::{Answer, key};
use super::arguments::{Arguments, count};
use super::world::World;

impl<B: ScriptBackend> World<B> {
    /// Runs the command if it only reads.
    pub(super) fn show_command(
        &mut self,
        arguments: &mut Arguments,
    ) -> Result<Option<Answer>, String> {
        let answer = match arguments.command.as_str() {
            "get_run" => self.get_run(arguments)?,
            "get_run_progress" => self.get_run_progress(arguments)?,
            "list_shards" => self.list_shards(arguments)?,
            "candidates" => self.candidates(arguments)?,
            "list_workers" => self.list_workers(arguments)?,
            "show" => self.show_shard(arguments)?,
            _ => return Ok(None),
        };
        Ok(Some(answer))
    }

    fn get_run(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (tenant, run) = (Self::tenant(arguments)?, Self::run(arguments)?);
        let result = self.observe(|coordinator, _| coordinator.get_run(tenant, run));
        Ok(Answer::of(result, |run| show_run(&run)))
    }

    fn get_run_progress(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant, run) =
            (self.state.clock, Self::tenant(arguments)?, Self::run(arguments)?);
        let result = self.observe(|coordinator, _| coordinator.get_run_progress(now, tenant, run));
        Ok(Answer::of(result, |progress| show_progress(&progress)))
    }

    fn list_shards(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let filter = match arguments.take("only").as_deref() {
            None => ShardFilter::all(),
            Some("active") => ShardFilter::active(),
            Some("available") => ShardFilter::available(),
            Some("parked") => ShardFilter::parked(),
            Some("roots") => ShardFilter::all().roots(),
            Some(other) => return Err(format!("unknown filter `{other}`")),
        };
        let rows = self.rows(arguments, filter)?;
        Ok(Answer::of(rows, |rows| {
            let rows: Vec<String> = rows.iter().map(|row| self.show_row(row)).collect();
            if rows.is_empty() { "nothing".to_owned() } else { rows.join("\n") }
        }))
    }

    fn show_shard(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let shard = self.shard_called(&arguments.need("shard")?)?;
        let rows = self.rows(arguments, ShardFilter::all())?;
        Ok(Answer::of(rows, |rows| match rows.iter().find(|row| row.shard == shard) {
            Some(row) => self.show_row(row),
            None => "no such shard".to_owned(),
        }))
    }

    /// Lists the shards for every command that prints shards.
    fn rows(
        &mut self,
        arguments: &mut Arguments,
        filter: ShardFilter,
    ) -> Result<Result<Vec<ShardSummary>, GetRunError>, String> {
        let (now, tenant, run) =
            (self.state.clock, Self::tenant(arguments)?, Self::run(arguments)?);
        let mut rows = Vec::new();
        let result = self.observe(|coordinator, _| {
            coordinator.list_shards_into(now, tenant, run, filter, &mut rows)
        });
        Ok(result.map(|()| rows))
    }

    fn candidates(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant, run) =
            (self.state.clock, Self::tenant(arguments)?, Self::run(arguments)?);
        let worker = Self::worker(arguments)?;
        let limit = arguments.take("limit").map(|limit| count(&limit)).transpose()?;
        let limit = limit.unwrap_or(CLAIM_CANDIDATES_MAX);
        let mut found = ClaimCandidates::new();
        let result = self.observe(|coordinator, _| {
            coordinator.collect_claim_candidates_into(now, tenant, run, worker, limit, &mut found)
        });
        Ok(Answer::of(result, |outlook| {
            // The first candidate is the backend's choice; the set of candidates is not.
            let mut found: Vec<String> = found.iter().map(|shard| self.name(*shard)).collect();
            found.sort_unstable();
            let next =
                outlook.earliest_deadline.map_or_else(|| "none".to_owned(), |at| at.to_string());
            format!("candidates={} next={next}", found.join(","))
        }))
    }

    fn list_workers(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let mut entries = Vec::new();
        let result =
            self.observe(|coordinator, _| coordinator.list_workers_into(now, tenant, &mut entries));
        Ok(Answer::of(result, |()| {
            let row = |entry: &gossip_coordination::WorkerEntry| {
                format!("worker {} {:?} until={}", entry.worker, entry.state, entry.expires_at)
            };
            let rows: Vec<String> = entries.iter().map(row).collect();
            if rows.is_empty() { "nobody".to_owned() } else { rows.join("\n") }
        }))
    }

    /// Formats one shard of a listing.
    fn show_row(&self, row: &ShardSummary) -> String {
        let mut text = format!("shard {} {:?}", self.name(row.shard), row.status);
        text.extend(row.park_reason.map(|reason| format!(" {reason:?}")));
        text.push_str(&format!(" range={}..{}", key(&row.start), key(&row.end)));
        let cursor = row.last_key.as_deref().map_or_else(|| "none".to_owned(), key);
        text.push_str(&format!(" cursor={cursor}"));
        text.extend(row.lease_deadline.map(|deadline| format!(" leased until={deadline}")));
        text.push_str(&format!(" acquired={}", row.acquire_count));
        text.extend(row.parent.map(|parent| format!(" parent={}", self.name(parent))));
        if row.spawned_count > 0 {
            text.push_str(&format!(" spawned={}", row.spawned_count));
        }
        text
    }
}

fn show_run(run: &RunRecord) -> String {
    let mut text = format!("run {} {:?} created={}", run.run(), run.status(), run.created_at());
    text.extend(run.completed_at().map(|at| format!(" completed={at}")));
    if run.is_paused() {
        text.push_str(" paused");
    }
    text.push_str(&format!(" roots={}", run.root_shards().len()));
    text
}

fn show_progress(progress: &RunProgress) -> String {
    let reached = progress.watermark.as_ref().map(|reached| key(reached.as_bytes()));
    format!(
        "total={} active={} done={} split={} parked={} leased={} watermark={} {:?}",
        progress.total,
        progress.active,
        progress.done,
        progress.split,
        progress.parked,
        progress.leased,
        reached.unwrap_or_else(|| "none".to_owned()),
        evaluate_run_terminal(progress),
    )
}
