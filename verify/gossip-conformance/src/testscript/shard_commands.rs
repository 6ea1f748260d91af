//! Commands on shards: acquiring a lease, and the operations under a lease.

use gossip_contracts::coordination::{SplitChild, SplitReplacePlan, SplitResidualPlan};
use gossip_contracts::identity::LogicalTime;
use gossip_coordination::protocol::{ClaimScope, OfferTerms, ReleaseMode};
use gossip_coordination::{
    AcquireResultView, CheckpointResult, CoordinationBackend, HandoffId, Lease, ParkReason,
    RenewResult, ShardClaiming,
};

use super::ScriptBackend;
use super::answer::{Answer, capacity, key, plain};
use super::arguments::{Arguments, Position, Range};
use super::world::{Held, World};

/// A grant without its borrow of the scratch buffer.
struct Granted {
    held: Held,
    text: String,
}

impl<B: ScriptBackend> World<B> {
    /// Runs the command if it concerns a shard.
    pub(super) fn shard_command(
        &mut self,
        arguments: &mut Arguments,
    ) -> Result<Option<Answer>, String> {
        let answer = match arguments.command.as_str() {
            "acquire" => self.acquire(arguments)?,
            "accept" => self.accept(arguments)?,
            "claim" => self.claim(arguments)?,
            "renew" => self.renew(arguments)?,
            "renew_many" => self.renew_many(arguments)?,
            "checkpoint" => self.checkpoint(arguments)?,
            "complete" => self.complete(arguments)?,
            "park" => self.park(arguments)?,
            "split_replace" => self.split_replace(arguments)?,
            "split_residual" => self.split_residual(arguments)?,
            "release" => self.release(arguments)?,
            "offer" => self.offer(arguments)?,
            "withdraw" => self.withdraw(arguments)?,
            _ => return Ok(None),
        };
        Ok(Some(answer))
    }

    fn acquire(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let (shard, worker) = (self.shard(arguments)?, Self::worker(arguments)?);
        let scope = scope(arguments)?;
        let granted = self.observe(|coordinator, scratch| {
            let result = match scope {
                ClaimScope::Any => {
                    coordinator.acquire_and_restore_into(now, tenant, shard, worker, scratch)
                }
                ClaimScope::SpareLastAttempts => coordinator
                    .acquire_sparing_last_attempt_into(now, tenant, shard, worker, scratch),
            };
            result.map(Granted::new).map_err(|error| Answer::refused(&error))
        });
        Ok(self.granted(arguments, granted))
    }

    fn accept(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let (shard, worker) = (self.shard(arguments)?, Self::worker(arguments)?);
        let handoff = handoff(arguments)?;
        let granted = self.observe(|coordinator, scratch| {
            let result = coordinator.accept(now, tenant, shard, worker, handoff, scratch);
            result.map(Granted::new).map_err(|error| Answer::refused(&error))
        });
        Ok(self.granted(arguments, granted))
    }

    fn claim(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let (run, worker) = (Self::run(arguments)?, Self::worker(arguments)?);
        let scope = scope(arguments)?;
        let granted = self.observe(|coordinator, scratch| {
            let result = coordinator.claim_within(scope, now, tenant, run, worker, scratch);
            result.map(Granted::new).map_err(|error| Answer::refused(&error))
        });
        Ok(self.granted(arguments, granted))
    }

    fn granted(&mut self, arguments: &mut Arguments, granted: Result<Granted, Answer>) -> Answer {
        match granted {
            Ok(Granted { held, text }) => {
                self.keep(arguments, held);
                Answer::done(text)
            }
            Err(refused) => {
                // A refused grant may have a name in the script.
                arguments.take("as");
                refused
            }
        }
    }

    fn renew(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let lease = self.presented(arguments)?.lease;
        let result = self.observe(|coordinator, _| coordinator.renew(now, tenant, &lease));
        Ok(Answer::of(result, |renewed| show_renewed(&renewed)))
    }

    /// `lease=` names a lease that the usual arguments can forge; `and=` names the other leases.
    fn renew_many(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let mut leases: Vec<Lease> = Vec::new();
        for name in arguments.take("and").iter().flat_map(|names| names.split(',')) {
            leases.push(self.held(name)?.lease);
        }
        leases.push(self.presented(arguments)?.lease);
        let mut results = Vec::new();
        self.observe(|coordinator, _| {
            coordinator.renew_many(now, tenant, &leases, &mut results);
        });
        let answer = |result| Answer::of(result, |renewed| show_renewed(&renewed));
        let answers: Vec<Answer> = results.into_iter().map(answer).collect();
        let texts: Vec<&str> = answers.iter().map(|answer| answer.text.as_str()).collect();
        let last = answers.last().ok_or("no answer for a presented lease")?;
        Ok(Answer { label: last.label.clone(), text: texts.join("; ") })
    }

    fn checkpoint(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let (lease, position) = (self.presented(arguments)?.lease, Position::take(arguments)?);
        let op = self.op(arguments)?;
        let result = self.observe(|coordinator, _| {
            coordinator.checkpoint(now, tenant, &lease, position.cursor(), op)
        });
        Ok(Answer::outcome(result, |CheckpointResult { request }| {
            request.map_or(String::new(), |request| plain(&format!("request={request:?}")))
        }))
    }

    fn complete(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let (lease, position) = (self.presented(arguments)?.lease, Position::take(arguments)?);
        let op = self.op(arguments)?;
        let result = self.observe(|coordinator, _| {
            coordinator.complete(now, tenant, &lease, position.cursor(), op)
        });
        Ok(Answer::outcome(result, nothing))
    }

    fn park(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let lease = self.presented(arguments)?.lease;
        let (reason, op) = (park_reason(arguments)?, self.op(arguments)?);
        let result =
            self.observe(|coordinator, _| coordinator.park_shard(now, tenant, &lease, reason, op));
        Ok(Answer::outcome(result, nothing))
    }

    /// `at=` splits the lease's range, whose cursor is `key=`; `children=` lists the children.
    fn split_replace(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let Held { lease, range } = self.presented(arguments)?;
        let children = parts(arguments, &range, "children")?;
        let op = self.op(arguments)?;
        let children = children.iter();
        let plan = SplitReplacePlan::try_new(
            children.map(|child| SplitChild::new(child.spec(), child.position.cursor())),
        );
        let plan = plan.map_err(|error| error.to_string())?;
        let result = self
            .observe(|coordinator, _| coordinator.split_replace(now, tenant, &lease, &plan, op));
        if let Ok(made) = &result {
            self.name_children(lease.shard(), &made.as_ref().into_inner().children);
        }
        Ok(Answer::outcome(result, |made| {
            let ids: Vec<String> = made.children.iter().map(ToString::to_string).collect();
            format!("children={}", ids.join(","))
        }))
    }

    /// `at=` splits the lease's range, or the range `of=`; `parts=` lists both parts.
    fn split_residual(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let Held { lease, range } = self.presented(arguments)?;
        let parts = parts(arguments, &range, "parts")?;
        let op = self.op(arguments)?;
        let [kept, given] = &parts[..] else { return Err("a residual has two parts".to_owned()) };
        let plan = SplitResidualPlan::try_new(kept.spec(), given.spec());
        let plan = plan.map_err(|error| error.to_string())?;
        let result = self
            .observe(|coordinator, _| coordinator.split_residual(now, tenant, &lease, &plan, op));
        if let Ok(made) = &result {
            self.name_children(lease.shard(), &[made.into_inner().residual]);
        }
        Ok(Answer::outcome(result, |made| format!("residual={}", made.residual)))
    }

    fn release(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let lease = self.presented(arguments)?.lease;
        let mode = match arguments.take("mode").as_deref() {
            None | Some("clean") => ReleaseMode::Clean,
            Some("failed") => ReleaseMode::Failed,
            Some(other) => return Err(format!("a release is clean or failed, not `{other}`")),
        };
        let op = self.op(arguments)?;
        let result =
            self.observe(|coordinator, _| coordinator.release(now, tenant, &lease, mode, op));
        Ok(Answer::outcome(result, nothing))
    }

    fn offer(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let (lease, position) = (self.presented(arguments)?.lease, Position::take(arguments)?);
        let terms = OfferTerms {
            handoff: handoff(arguments)?,
            destination: Self::worker_named(arguments, "to")?,
            deadline: LogicalTime::from_raw(arguments.need_number("until")?),
        };
        let op = self.op(arguments)?;
        let result = self.observe(|coordinator, _| {
            coordinator.offer(now, tenant, &lease, terms, position.cursor(), op)
        });
        Ok(Answer::outcome(result, nothing))
    }

    fn withdraw(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let lease = self.presented(arguments)?.lease;
        let (handoff, op) = (handoff(arguments)?, self.op(arguments)?);
        let result =
            self.observe(|coordinator, _| coordinator.withdraw(now, tenant, &lease, handoff, op));
        Ok(Answer::outcome(result, nothing))
    }
}

impl Granted {
    fn new(view: AcquireResultView<'_>) -> Self {
        let (spec, cursor) = (view.snapshot.spec(), view.snapshot.cursor());
        let text = format!(
            "granted shard={} fence={} deadline={} attempts={} range={}..{} cursor={} {}",
            view.lease.shard(),
            view.lease.fence(),
            view.lease.deadline(),
            view.attempts,
            key(spec.start),
            key(spec.end),
            show_cursor(cursor.last_key(), cursor.token()),
            capacity(view.capacity),
        );
        let range = Range::between(spec.start, spec.end);
        Self { held: Held { lease: view.lease, range }, text }
    }
}

fn show_cursor(last_key: Option<&[u8]>, token: Option<&[u8]>) -> String {
    let shown = last_key.map_or_else(|| "none".to_owned(), key);
    match token {
        Some(token) => format!("{shown}/{}", key(token)),
        None => shown,
    }
}

/// Formats the result of a renewal.
fn show_renewed(renewed: &RenewResult) -> String {
    let mut text = format!("renewed deadline={}", renewed.new_deadline);
    text.push_str(&format!(" {}", capacity(renewed.capacity)));
    if let Some(offer) = renewed.offer {
        text.push_str(&format!(" offer={} until={}", offer.handoff.as_raw(), offer.deadline));
    }
    if let Some(request) = &renewed.request {
        text.push_str(&plain(&format!(" request={request:?}")));
    }
    if renewed.run_paused {
        text.push_str(" paused");
    }
    text
}

fn nothing(_: ()) -> String {
    String::new()
}

fn handoff(arguments: &mut Arguments) -> Result<HandoffId, String> {
    arguments.need_number("handoff").map(HandoffId::from_raw)
}

fn park_reason(arguments: &mut Arguments) -> Result<ParkReason, String> {
    let name = arguments.take("reason").unwrap_or_else(|| "Other".to_owned());
    let reason = ParkReason::ALL.into_iter().find(|reason| format!("{reason:?}") == name);
    reason.ok_or_else(|| format!("`{name}` is not a park reason"))
}

/// Returns the parts of a split: those listed in the argument `spelled`, or the range cut at `at=`.
fn parts(arguments: &mut Arguments, range: &Range, spelled: &str) -> Result<Vec<Range>, String> {
    if let Some(parts) = arguments.take(spelled) {
        return Range::parse_all(&parts);
    }
    let whole = arguments.take("of").map(|of| Range::parse(&of)).transpose()?;
    let position = Position::take(arguments)?;
    let points = arguments.need("at")?;
    whole.as_ref().unwrap_or(range).cut(&points, &position)
}

/// Reads which shards a claim or an acquire may take: `spare=last`, or all.
fn scope(arguments: &mut Arguments) -> Result<ClaimScope, String> {
    match arguments.take("spare").as_deref() {
        None => Ok(ClaimScope::Any),
        Some("last") => Ok(ClaimScope::SpareLastAttempts),
        Some(other) => Err(format!("spare={other} is not spare=last")),
    }
}
