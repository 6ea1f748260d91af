//! Commands on runs, administration commands, and commands of the worker registry.

use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::{FenceEpoch, LogicalTime, OpId, RunId, TenantId, WorkerId};
use gossip_coordination::{
    CreateRunError, IdempotentOutcome, RunConfig, RunConfigError, RunManagement, RunOpResult,
    RunTransitionError, ShardAction, SplitKey, WorkerState,
};

use super::ScriptBackend;
use super::answer::Answer;
use super::arguments::{Arguments, Manifest, bytes, number};
use super::world::World;
use crate::FenceFloors as _;

/// Default lease duration of a run.
const LEASE: u64 = 100;

impl<B: ScriptBackend> World<B> {
    /// Runs the command if it concerns runs, administration or the worker registry.
    pub(super) fn run_command(
        &mut self,
        arguments: &mut Arguments,
    ) -> Result<Option<Answer>, String> {
        let answer = match arguments.command.as_str() {
            "given" => self.given(arguments)?,
            "create_run" => self.create_run(arguments)?,
            "register_shards" => self.register_shards(arguments)?,
            "create_run_with_shards" => {
                let result = self.create_run_with_shards(arguments)?;
                Answer::outcome(result, show_registered)
            }
            "complete_run" => self.transition(arguments, B::Coordinator::complete_run)?,
            "fail_run" => self.transition(arguments, B::Coordinator::fail_run)?,
            "cancel_run" => self.transition(arguments, B::Coordinator::cancel_run)?,
            "pause_run" => self.transition(arguments, B::Coordinator::pause_run)?,
            "resume_run" => self.transition(arguments, B::Coordinator::resume_run)?,
            "delete_run" => self.delete_run(arguments)?,
            "raise_fence_floor" => self.raise_fence_floor(arguments)?,
            "unpark" => self.unpark(arguments)?,
            "request_action" => self.request_action(arguments)?,
            "revoke_lease" => self.revoke_lease(arguments)?,
            "register_worker" => self.register_worker(arguments)?,
            "heartbeat" => self.heartbeat(arguments)?,
            _ => return Ok(None),
        };
        Ok(Some(answer))
    }

    /// Creates an active run as the starting point of a script; prints no events.
    fn given(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let made = self.create_run_with_shards(arguments)?;
        self.forget_events();
        made.map(|_| Answer::done("ok")).map_err(|error| error.to_string())
    }

    fn create_run(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant, run) =
            (self.state.clock, Self::tenant(arguments)?, Self::run(arguments)?);
        let result = match config(arguments)? {
            Ok(config) => {
                self.observe(|coordinator, _| coordinator.create_run(now, tenant, run, config))
            }
            Err(invalid) => Err(invalid.into()),
        };
        Ok(Answer::of(result, |()| "executed".to_owned()))
    }

    fn create_run_with_shards(
        &mut self,
        arguments: &mut Arguments,
    ) -> Result<Result<IdempotentOutcome<RunOpResult>, CreateRunError>, String> {
        let (now, tenant, run) =
            (self.state.clock, Self::tenant(arguments)?, Self::run(arguments)?);
        let manifest = Manifest::parse(&arguments.need("shards")?)?;
        let (config, op) = (config(arguments)?, self.op(arguments)?);
        Ok(match config {
            Ok(config) => self.observe(|coordinator, _| {
                let shards = manifest.inputs();
                coordinator.create_run_with_shards(now, tenant, run, config, &shards, op)
            }),
            Err(invalid) => Err(invalid.into()),
        })
    }

    fn register_shards(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant, run) =
            (self.state.clock, Self::tenant(arguments)?, Self::run(arguments)?);
        let manifest = Manifest::parse(&arguments.need("shards")?)?;
        let op = self.op(arguments)?;
        let result = self.observe(|coordinator, _| {
            coordinator.register_shards(now, tenant, run, &manifest.inputs(), op)
        });
        Ok(Answer::outcome(result, show_registered))
    }

    /// Runs one of the five status transitions, which take the same arguments.
    fn transition(
        &mut self,
        arguments: &mut Arguments,
        call: impl FnOnce(
            &mut B::Coordinator,
            LogicalTime,
            TenantId,
            RunId,
            OpId,
        ) -> Result<IdempotentOutcome<()>, RunTransitionError>,
    ) -> Result<Answer, String> {
        let (now, tenant, run) =
            (self.state.clock, Self::tenant(arguments)?, Self::run(arguments)?);
        let op = self.op(arguments)?;
        let result = self.observe(|coordinator, _| call(coordinator, now, tenant, run, op));
        Ok(Answer::outcome(result, |()| String::new()))
    }

    fn delete_run(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant, run) =
            (self.state.clock, Self::tenant(arguments)?, Self::run(arguments)?);
        let op = self.op(arguments)?;
        let result = self.observe(|coordinator, _| coordinator.delete_run(now, tenant, run, op));
        Ok(Answer::outcome(result, |()| String::new()))
    }

    fn raise_fence_floor(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant, run) =
            (self.state.clock, Self::tenant(arguments)?, Self::run(arguments)?);
        let at_least = FenceEpoch::from_raw(arguments.number("at_least")?.unwrap_or(0));
        let result = self
            .observe(|coordinator, _| coordinator.raise_fence_floor(now, tenant, run, at_least));
        Ok(Answer::of(result, |floor| format!("executed floor={}", floor.as_raw())))
    }

    fn unpark(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let (shard, op) = (self.shard(arguments)?, self.op(arguments)?);
        let result =
            self.observe(|coordinator, _| coordinator.unpark_shard(now, tenant, shard, op));
        Ok(Answer::outcome(result, |()| String::new()))
    }

    fn request_action(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let (shard, action) = (self.shard(arguments)?, action(&arguments.need("action")?)?);
        let until = LogicalTime::from_raw(arguments.need_number("until")?);
        let op = self.op(arguments)?;
        let result = self.observe(|coordinator, _| {
            coordinator.request_action(now, tenant, shard, &action, until, op)
        });
        Ok(Answer::outcome(result, |()| String::new()))
    }

    fn revoke_lease(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let (shard, op) = (self.shard(arguments)?, self.op(arguments)?);
        let fence = arguments.number("fence")?.map(FenceEpoch::from_raw);
        let result =
            self.observe(|coordinator, _| coordinator.revoke_lease(now, tenant, shard, fence, op));
        Ok(Answer::outcome(result, |()| String::new()))
    }

    fn register_worker(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let worker = Self::worker(arguments)?;
        let result =
            self.observe(|coordinator, _| coordinator.register_worker(now, tenant, worker, None));
        Ok(Answer::of(result, |()| "registered".to_owned()))
    }

    fn heartbeat(&mut self, arguments: &mut Arguments) -> Result<Answer, String> {
        let (now, tenant) = (self.state.clock, Self::tenant(arguments)?);
        let worker = Self::worker(arguments)?;
        let state = match arguments.need("state")?.as_str() {
            "working" => WorkerState::Working,
            "idle" => WorkerState::Idle,
            "draining" => WorkerState::Draining,
            other => return Err(format!("unknown worker state `{other}`")),
        };
        let result =
            self.observe(|coordinator, _| coordinator.heartbeat(now, tenant, worker, state));
        Ok(Answer::of(result, |()| "heard".to_owned()))
    }

    pub(super) fn worker_named(arguments: &mut Arguments, name: &str) -> Result<WorkerId, String> {
        arguments.need_number(name).map(WorkerId::from_raw)
    }
}

/// Parses the settings of a run without validating them: scripts test the validation.
fn config(arguments: &mut Arguments) -> Result<Result<RunConfig, RunConfigError>, String> {
    let lease = arguments.number("lease")?.unwrap_or(LEASE);
    let retries = match arguments.number("retries")? {
        Some(retries) => Some(u32::try_from(retries).map_err(|_| "too many retries".to_owned())?),
        None => None,
    };
    Ok(RunConfig::try_new(CursorSemantics::Completed, lease, retries))
}

/// `split`, `split@key`, `release`, `hand-off`, `hand-off@worker`, `withdraw`.
fn action(text: &str) -> Result<ShardAction, String> {
    let (name, detail) = match text.split_once('@') {
        Some((name, detail)) => (name, Some(detail)),
        None => (text, None),
    };
    match (name, detail) {
        ("split", None) => Ok(ShardAction::Split(None)),
        ("split", Some(key)) => {
            let key = SplitKey::try_new(&bytes(key)?).ok_or("invalid split key")?;
            Ok(ShardAction::Split(Some(key)))
        }
        ("release", None) => Ok(ShardAction::Release),
        ("hand-off", None) => Ok(ShardAction::HandOff(None)),
        ("hand-off", Some(worker)) => {
            Ok(ShardAction::HandOff(Some(WorkerId::from_raw(number(worker)?))))
        }
        ("withdraw", None) => Ok(ShardAction::Withdraw),
        _ => Err(format!("unknown action `{text}`")),
    }
}

/// Formats the first few ids; a manifest may have thousands.
fn show_registered(result: RunOpResult) -> String {
    const SHOWN_MAX: usize = 4;
    match result {
        RunOpResult::RegisteredShards { ids } if ids.len() <= SHOWN_MAX => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            format!("shards={}", ids.join(","))
        }
        RunOpResult::RegisteredShards { ids } => format!("{} shards", ids.len()),
        RunOpResult::Ack => "acknowledged".to_owned(),
        other => unreachable!("{other:?} has no text"),
    }
}
